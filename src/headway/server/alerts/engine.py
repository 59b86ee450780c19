"""The engine's alert rules, and the table [alerts] of the settings file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from headway.core.duration import format_duration, parse_duration
from headway.core.errors import HeadwayError, InvalidValue, StoreChanged, located
from headway.core.naming import did_you_mean
from headway.runtime.latency import LaneLatency
from headway.server.alerts.rule_book import Facts
from headway.server.alerts.rules import Finding, Growth, Lasting, Rule, Severity

_SPANS = {
    "each": "each_ms",
    "lane_latency_for": "lane_latency_for_ms",
    "dead_jobs_within": "dead_jobs_within_ms",
    "no_worker_for": "no_worker_for_ms",
    "store_away_for": "store_away_for_ms",
    "horizon_within": "horizon_within_ms",
}
_KNOWN = ("urls", "off", "runbooks", "dead_jobs_more_than", *_SPANS)
_LEAST_EACH_MS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertSettings:
    """Recipients, rules and thresholds of alerts.

    Attributes:
        urls: of apprise; where alerts go besides the log.
        off: names of rules that do not hold.
        runbooks: what stands before `#` and the rule's name in the link of an alert.
        each_ms: from one look to the next.
        lane_latency_for_ms: how long a lane must miss its target.
        dead_jobs_more_than: so many new dead jobs of a lane are borne.
        dead_jobs_within_ms: how long a dead job is new.
        no_worker_for_ms: how long a lane with due jobs may be without a worker.
        store_away_for_ms: how long the store may be away.
        horizon_within_ms: for how long hours must be known.
    """

    urls: tuple[str, ...] = field(default=(), repr=False)
    off: frozenset[str] = frozenset()
    runbooks: str = "docs/how-to/observe.md"
    each_ms: int = 10_000
    lane_latency_for_ms: int = 60_000
    dead_jobs_more_than: int = 0
    dead_jobs_within_ms: int = 900_000
    no_worker_for_ms: int = 60_000
    store_away_for_ms: int = 15_000
    horizon_within_ms: int = 3 * 86_400_000


def read_alert_settings(given: Mapping[str, object]) -> AlertSettings:
    """Read the table.

    Args:
        given: as written: `urls` and `off` are lists of texts, `dead_jobs_more_than` is a number,
            `runbooks` a text, and the others are spans such as "1m".

    Returns:
        The settings with their defaults.

    Raises:
        InvalidValue: there is no such key, or a value is unusable; the message never contains a
            URL.
    """
    values: dict[str, object] = {}
    for key, value in given.items():
        if key not in _KNOWN:
            message = f"alerts: there is no setting {key!r:.80}"
            hint = did_you_mean(key, _KNOWN, f"known: {', '.join(_KNOWN)}")
            raise InvalidValue(message, hint=hint)
        values[_SPANS.get(key, key)] = _read(key, value)
    settings = AlertSettings(**values)  # type: ignore[arg-type]  (each was read by its key)
    if settings.each_ms < _LEAST_EACH_MS:
        message = f"alerts.each is {settings.each_ms} ms"
        raise InvalidValue(message, hint="at least 100ms")
    return settings


def _read(key: str, value: object) -> object:
    if key in _SPANS:
        with located(f"alerts.{key}: ", HeadwayError):
            return parse_duration(value)
    if key in {"urls", "off"}:
        texts = cast("list[object]", value) if isinstance(value, list | tuple) else [None]
        if not all(isinstance(one, str) for one in texts):
            message = f"alerts.{key} is not a list of texts"
            raise InvalidValue(message, hint=f'write {key} = ["..."]')
        return tuple(texts) if key == "urls" else frozenset(texts)
    if key == "runbooks":
        if not isinstance(value, str):
            message = "alerts.runbooks is not a text"
            raise InvalidValue(message, hint="the address of a page")
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        message = f"alerts.{key} is {value!r:.40}"
        raise InvalidValue(message, hint="a whole number from 0")
    return value


class DeadJobs:
    """Finds lanes whose number of dead jobs has grown lately.

    What was dead before the first look is not counted, and what is retried or forgotten is not
    taken off.
    """

    name = "dead_jobs"
    severity = Severity.P2

    def __init__(self, more_than: int, within_ms: int) -> None:
        self._more_than = more_than
        self._within_ms = within_ms
        self.memory = Growth(within_ms)

    def look(self, facts: Facts) -> Sequence[Finding] | None:
        """Return the lanes with too many new ones."""
        if facts.overview is None:
            return None
        dead = {lane.name: lane.counts.get("dead", 0) for lane in facts.overview.lanes}
        return [
            Finding(subject=lane, text=self._text(lane, new, dead.get(lane, 0)))
            for lane, new in self.memory.note(dead, facts.at).items()
            if new > self._more_than
        ]

    def _text(self, lane: str, new: int, dead: int) -> str:
        jobs = "1 job" if new == 1 else f"{new} jobs"
        within = format_duration(self._within_ms)
        return f"{jobs} of the lane {lane} died within {within}; it holds {dead} dead ones"


class Horizon:
    """Finds gates of opening hours that are not extended; past their horizon they are closed."""

    name = "horizon"
    severity = Severity.P2

    def __init__(self, within_ms: int) -> None:
        self._within_ms = within_ms

    def look(self, facts: Facts) -> Sequence[Finding] | None:
        """Return the gates whose horizon is too near."""
        if facts.overview is None:
            return None
        now = facts.overview.stats.now
        return [
            Finding(subject=gate.name, text=_horizon_text(gate.name, gate.horizon_at - now))
            for gate in facts.overview.gates
            if gate.horizon_at is not None and gate.horizon_at - now < self._within_ms
        ]


def _horizon_text(gate: str, left: int) -> str:
    if left <= 0:
        return f"the hours of the gate {gate} are known no more: it is closed"
    return f"the hours of the gate {gate} are known for {format_duration(left)} only"


class LaneLatencyRule:
    """Finds lanes whose jobs start later than the lane's target allows."""

    name = "lane_latency"
    severity = Severity.P1

    def __init__(self, for_ms: int) -> None:
        """Make the rule.

        Args:
            for_ms: how long it must last.
        """
        self.memory = Lasting(for_ms)

    def look(self, facts: Facts) -> Sequence[Finding] | None:
        """Return the lanes that have missed their targets for so long."""
        if facts.overview is None:
            return None
        breached = {lane.lane: lane for lane in facts.latencies if lane.breached}
        return [
            Finding(subject=name, text=_latency_text(breached[name]))
            for name in self.memory.note(breached, facts.at)
        ]


def _latency_text(lane: LaneLatency) -> str:
    parts = [f"the lane {lane.lane} misses its target of {format_duration(lane.target_ms or 0)}"]
    if lane.p95_ms is not None:
        parts.append(f"95 of 100 jobs start within {format_duration(lane.p95_ms)}")
    if lane.head_ms is not None:
        parts.append(f"the first that waits has waited {format_duration(lane.head_ms)}")
    if lane.handlers_missing:
        parts.append("it lacks only a free handler")
    return "; ".join(parts)


class NoWorker:
    """Finds lanes with due jobs and no live worker, except paused ones."""

    name = "no_worker"
    severity = Severity.P1

    def __init__(self, for_ms: int) -> None:
        """Make the rule.

        Args:
            for_ms: how long it must last.
        """
        self.memory = Lasting(for_ms)

    def look(self, facts: Facts) -> Sequence[Finding] | None:
        """Return the lanes that have been without a worker for so long."""
        if facts.overview is None:
            return None
        now = facts.overview.stats.now
        idle = {
            lane.name: now - lane.oldest_due_at
            for lane in facts.overview.lanes
            if lane.oldest_due_at is not None
            and lane.oldest_due_at <= now
            and not lane.workers
            and not lane.paused
        }
        return [
            Finding(
                subject=name,
                text=f"no worker serves the lane {name}, where a job has been due for "
                f"{format_duration(idle[name])}",
            )
            for name in self.memory.note(idle, facts.at)
        ]


OTHERS = 3
"""Servers that do not lead wait so many times as long: the one that does may be away as well."""


class StoreAway:
    """Finds a store that does not answer, or that is not the one it was."""

    name = "store_away"
    severity = Severity.P0

    def __init__(self, for_ms: int) -> None:
        """Make the rule.

        Args:
            for_ms: how long it must last.
        """
        self._for_ms = for_ms

    def look(self, facts: Facts) -> Sequence[Finding]:
        """Return the store, if it has been away for so long."""
        if isinstance(facts.fault, StoreChanged):
            # It has answered, and no patience heals it.
            text = f"{facts.fault.message}; {facts.fault.hint}"
            return (Finding(subject="store", text=text),)
        patience = self._for_ms if facts.leads else OTHERS * self._for_ms
        if facts.fault is None or facts.away_ms < patience:
            return ()
        seconds = facts.away_ms // 1000
        text = f"the store has not answered for {seconds} s: {facts.fault.message}"
        return (Finding(subject="store", text=text),)


def rules(settings: AlertSettings) -> tuple[Rule[Facts], ...]:
    """Return the rules of the engine, also those that are off.

    Args:
        settings: with the values from which on they speak.
    """
    return (
        StoreAway(settings.store_away_for_ms),
        NoWorker(settings.no_worker_for_ms),
        LaneLatencyRule(settings.lane_latency_for_ms),
        DeadJobs(settings.dead_jobs_more_than, settings.dead_jobs_within_ms),
        Horizon(settings.horizon_within_ms),
    )
