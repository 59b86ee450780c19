"""The app of a scenario, with its gates, lanes and kinds declared as in a user's program."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from headway.contract.store import Store
from headway.core.errors import InvariantBroken
from headway.core.gates.spec import GateNeed
from headway.core.retry import Backoff, RetryPolicy
from headway.lab.outside_world import OutsideWorld
from headway.lab.scenario import KindTable, RetryTable, Scenario, ScenarioLane
from headway.runtime.app import App
from headway.runtime.declaration import LaneOptions
from headway.runtime.kind_options import JobOptions
from headway.runtime.timing import Timing


def backoff(table: RetryTable) -> RetryPolicy:
    """Return the retry policy that a table declares."""
    return Backoff(
        attempts=table.attempts,
        base=timedelta(milliseconds=table.base),
        factor=table.factor,
        cap=timedelta(milliseconds=table.cap),
        jitter=table.jitter,
    )


_KEPT = timedelta(days=3650)
"""Retention of jobs; longer than any scenario, because the history is read at its end."""


def declared_app(
    scenario: Scenario,
    world: OutsideWorld,
    store: Store,
    timing: Timing,
    *,
    dead: Callable[[], bool] = lambda: False,
) -> App:
    """Return an app that declares the lanes, gates and kinds of a scenario.

    Args:
        dead: returns whether the process that runs the handlers has died.
    """
    app = App(opener=_never, store=store, name="scenario", timing=timing)
    for name, lane in scenario.lanes.items():
        app.lane(name, **_lane_options(lane))
    for name, kind in scenario.kinds.items():
        handler = world.handler(name, _arguments(scenario, name), dead)
        app.job(**_options(scenario, world, name, kind))(handler)
    return app


def _lane_options(lane: ScenarioLane) -> LaneOptions:
    options = LaneOptions(weights=lane.weights)
    if lane.concurrency is not None:
        options["concurrency"] = lane.concurrency
    if lane.target is not None:
        options["target"] = timedelta(milliseconds=lane.target)
    if lane.fair is not None:
        options["fair"] = lane.fair
    if lane.max_backlog is not None:
        options["max_backlog"] = lane.max_backlog
    return options


def _never(url: str) -> Store:
    message = f"a scenario's app must not open a store, but opened {url!r}"
    raise InvariantBroken(message)


def _options(scenario: Scenario, world: OutsideWorld, name: str, kind: KindTable) -> JobOptions:
    options = JobOptions(
        name=name,
        lane=kind.lane,
        gates=_needs(scenario, kind),
        priority=kind.priority,
        tenant=kind.tenant,
        retry=backoff(kind.retry),
        start_within=timedelta(milliseconds=kind.start_within),
        keep=_KEPT,
        key_for=_KEPT,
    )
    if kind.timeout is not None:
        options["timeout"] = timedelta(milliseconds=kind.timeout)
    if kind.expires is not None:
        options["expires"] = timedelta(milliseconds=kind.expires)
    if kind.subject is not None:
        options["subject"] = kind.subject
    if kind.hand_over is not None:
        options["on_deadline"] = kind.hand_over.on_deadline
        if kind.hand_over.ask:
            options["reconcile"] = world.ask
    return options


def _needs(scenario: Scenario, kind: KindTable) -> list[GateNeed]:
    return [
        scenario.gates[use.gate].spec(use.gate).take(use.take, hold=use.hold) for use in kind.gates
    ]


def _arguments(scenario: Scenario, kind: str) -> list[str]:
    found: dict[str, None] = {}
    for table in scenario.arrivals:
        if table.kind == kind:
            found.update(dict.fromkeys([*table.args, *table.fields]))
    return list(found)
