"""The app that a scenario declares: its gates, lanes and kinds, as a program would."""

from __future__ import annotations

from datetime import timedelta

from headway.contract.store import Store
from headway.core.gates.spec import GateNeed
from headway.lab.gate_specs import backoff, gate_spec
from headway.lab.outside import Outside
from headway.lab.scenario import KindTable, Scenario
from headway.runtime.app import App
from headway.runtime.kind_options import JobOptions
from headway.runtime.timing import Timing

_KEPT = timedelta(days=3650)
"""Longer than any scenario: the history is read at the end."""


def declared_app(scenario: Scenario, outside: Outside, store: Store, timing: Timing) -> App:
    """Declares everything of a scenario.

    Args:
        scenario: what is asked for.
        outside: plays the handlers.
        store: where the app lives.
        timing: its clock.

    Returns:
        An app like a user's.
    """
    app = App(store=store, timing=timing)
    for name, lane in scenario.lanes.items():
        app.lane(
            name,
            concurrency=lane.concurrency,
            target=None if lane.target is None else timedelta(milliseconds=lane.target),
            fair=lane.fair,
            weights=lane.weights,
            max_backlog=lane.max_backlog,
        )
    for name, kind in scenario.kinds.items():
        _declare(app, scenario, outside, name, kind)
    return app


def _declare(app: App, scenario: Scenario, outside: Outside, name: str, kind: KindTable) -> None:
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
            options["reconcile"] = outside.ask
    app.job(**options)(outside.handler(name, _arguments(scenario, name)))


def _needs(scenario: Scenario, kind: KindTable) -> list[GateNeed]:
    return [
        gate_spec(use.gate, scenario.gates[use.gate]).take(use.take, hold=use.hold)
        for use in kind.gates
    ]


def _arguments(scenario: Scenario, kind: str) -> list[str]:
    found: dict[str, None] = {}
    for table in scenario.arrivals:
        if table.kind == kind:
            found.update(dict.fromkeys([*table.args, *table.fields]))
    return list(found)
