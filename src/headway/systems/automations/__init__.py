"""The system `automations`: recurring sessions against git repositories; its metrics and rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter
from prometheus_client.core import Metric

from headway.contract.store import Store
from headway.core.duration import format_duration
from headway.core.state import State
from headway.runtime.app import App
from headway.runtime.settings_table import Span, read_table
from headway.server.alerts.rule_set import Facts, RuleSet
from headway.server.alerts.rules import FindingTexts, Lasting, Lasts, Rule, Severity, ThresholdTable
from headway.server.metrics import Families, Samples, one
from headway.server.overview import Overview
from headway.server.service import Service
from headway.systems.automations.dispatcher import LANE, LIMIT, NAME, Dispatcher
from headway.systems.automations.folders import read_folders, read_settings
from headway.systems.automations.pages import pages_of
from headway.systems.automations.reports import concurrency, health, listing, metrics
from headway.systems.automations.routes import ROUTES
from headway.systems.jobs import find_lane

FAMILIES = Families()
"""All metrics, in the order of the reference."""
gauge, counter = FAMILIES.gauge, FAMILIES.counter
DISPATCHES = counter(
    "automations_dispatches", "Times at which this server started at least one session."
)
SPAWNED = counter("automations_spawned", "Sessions that this server started.")
ERRORS = counter("automations_errors", "Sessions of this server that did not succeed.")
REMADE = counter(
    "automations_remade", "Broken mirrors and worktrees that this server has recreated."
)
LAST = gauge(
    "automations_last_dispatch_timestamp_seconds", "When this server last started a session."
)
DURATION = gauge(
    "automations_last_dispatch_duration_seconds", "Time from due to started of that session."
)
RESULT = gauge(
    "automations_last_dispatch_result",
    "Sessions and entries by result when this server last started a session: dispatched, notDue, "
    "locked, concurrencyLimit, disabled, errors.",
    "result",
)
SKIPS = gauge(
    "automations_fires_folded",
    "Fires of known entries that were folded into an earlier one, on all servers.",
)
INVALID = gauge("automations_invalid_entries", "Invalid entries of the file.")
ACTIVE = gauge("automations_active", "Running sessions, on all servers.")
LOCKED = gauge("automations_waiting", "Due sessions that wait for a repository or a place.")
SLOTS = gauge("automations_slots", "Sessions that may run at once.")
LOWERED = gauge(
    "automations_limit_lowered", "Whether this machine's load lowers the limit: 1 or 0."
)


class Thresholds(ThresholdTable):
    """How long a condition must last before servers alert, in ms.

    Attributes:
        runbooks: start of an alert's link, before `#` and the name of the rule.
        late_for_ms: for fires that are late by more than three ticks.
        waiting_for_ms: for a session that waits for its repository or a place.
        lowered_for_ms: for a limit that is lowered by the load.
    """

    runbooks: str = "docs/how-to/automations-runbooks.md"
    late_for_ms: Span = 60_000
    waiting_for_ms: Span = 3_600_000
    lowered_for_ms: Span = 1_800_000


@dataclass(frozen=True, kw_only=True, slots=True)
class AutomationsOverview:
    """The problems of automations at one time, by rule and subject.

    Attributes:
        at: ms on a monotonic clock; only differences are meaningful.
    """

    at: int
    found: Mapping[str, FindingTexts]


def automation_rules(at: Thresholds) -> tuple[Rule[AutomationsOverview], ...]:
    """Return the rules, most severe first."""
    rows = (
        ("automations_late", Severity.P1, at.late_for_ms),
        ("entry_skipped", Severity.P2, 0),
        ("session_failed", Severity.P2, 0),
        ("session_waiting", Severity.P2, at.waiting_for_ms),
        ("limit_lowered", Severity.P3, at.lowered_for_ms),
    )
    return tuple(Lasts(name, grade, ms, partial(_lasting, name)) for name, grade, ms in rows)


def _lasting(rule: str, overview: AutomationsOverview) -> Lasting:
    return {
        subject: lambda ms, text=text: f"{text} (for {format_duration(ms)})" if ms else text
        for subject, text in overview.found.get(rule, {}).items()
    }


async def read_problems(
    store: Store, dispatcher: Dispatcher, facts: Facts
) -> AutomationsOverview | None:
    """Return the problems; None if the store is unavailable, or another server watches it."""
    if facts.overview is None:
        return None
    rows = await listing(store, dispatcher)

    def newest(*words: str) -> FindingTexts:
        return {
            one["id"]: f"the newest session is {one['status']}: {one['reason']}".removesuffix(": ")
            for one in rows
            if one["status"] in words and (one["enabled"] or one["status"] == "skipped")
        }

    late = (await health(store, dispatcher))["status"] == "unhealthy"
    invalid = {one.automation_id or str(dispatcher.file): str(one) for one in dispatcher.faults}
    found: dict[str, FindingTexts] = {
        "automations_late": {NAME: "fires are late by more than three ticks"} if late else {},
        "entry_skipped": {**invalid, **newest("skipped")},
        "session_failed": newest("failed"),
        "session_waiting": newest("locked", "waiting"),
        "limit_lowered": {LIMIT: dispatcher.lowered} if dispatcher.lowered else {},
    }
    return AutomationsOverview(at=facts.at, found=found)


class AutomationsSystem:
    """The system `automations`."""

    name: str = NAME
    routers: Sequence[APIRouter] = (ROUTES,)

    def __init__(self, dispatcher: Dispatcher, *, look_each_ms: int, alerts: Thresholds) -> None:
        self.dispatcher = dispatcher
        self.pages = pages_of(dispatcher)
        self._look_each_ms = look_each_ms
        self._alerts = alerts

    def declare(self, app: App) -> None:
        """Declare the kind of sessions on an app.

        Raises:
            InvalidValue: the state directory cannot be created.
        """
        self.dispatcher.open()
        self.dispatcher.declare(app)

    async def start(self, service: Service) -> None:
        """Declare the entries of the file, and watch it for edits."""
        dispatcher = self.dispatcher
        dispatcher.timing = service.timing
        dispatcher.started_at = service.timing.monotonic()
        service.system_services[NAME] = dispatcher
        service.scrapes.add(AutomationMetrics(service.store, dispatcher))
        rules = partial(automation_rules, self._alerts)
        see = partial(read_problems, service.store, dispatcher)
        service.alerts.add(RuleSet(rules=rules, read=see, runbooks=self._alerts.runbooks))
        await dispatcher.sync(service.store)
        watch = partial(dispatcher.watch, service.store, self._look_each_ms / 1000)
        service.keep_running(watch, "automations.toml")


class AutomationMetrics:
    """The metrics of automations; see `headway.server.metrics`."""

    def __init__(self, store: Store, dispatcher: Dispatcher) -> None:
        self._store = store
        self._dispatcher = dispatcher

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """See `MetricsSource.metrics`."""
        counts = self._dispatcher.runner.counts
        found = [
            one(DISPATCHES, counts.dispatches),
            one(SPAWNED, counts.spawned),
            one(ERRORS, counts.errors),
            one(REMADE, counts.remade),
            one(LAST, (counts.last_at or 0) / 1000),
            one(DURATION, (counts.last_ms or 0) / 1000),
            one(INVALID, len(self._dispatcher.faults)),
            one(LOWERED, bool(self._dispatcher.lowered)),
        ]
        if overview is None:
            return found
        usage = await concurrency(self._store)
        done = await metrics(self._store, self._dispatcher)
        found += [one(SKIPS, done["totalSkips"]), _result(done["lastDispatchResult"])]
        lane = find_lane(overview, LANE)
        states = {} if lane is None else lane.counts
        waiting = states.get(State.WAITING, 0) + states.get(State.PARKED, 0)
        found += [one(ACTIVE, usage["used"]), one(LOCKED, waiting), one(SLOTS, usage["max"] or 0)]
        return found


def _result(last: Mapping[str, Any] | None) -> Metric:
    """Return the result of the last dispatch; no samples before the first."""
    samples = Samples(RESULT)
    if last is not None:
        samples.put(last["dispatched"], "dispatched")
        for reason, count in last["skipped"].items():
            samples.put(count, reason)
        samples.put(len(last["errors"]), "errors")
    return samples.metric()


def make(settings: Mapping[str, object]) -> AutomationsSystem:
    """Build the system from the [automations] settings."""
    read = read_settings(settings)
    dispatcher = Dispatcher(
        file=read.file, folders=read_folders(read.state_dir), lease_ms=read.lease
    )
    alerts = read_table("automations.alerts", Thresholds, read.alerts)
    return AutomationsSystem(dispatcher, look_each_ms=read.look_each, alerts=alerts)
