"""The engine's alert rules, and the `[alerts]` table of the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from headway.core.duration import format_duration
from headway.core.errors import StoreChanged
from headway.runtime.latency import LaneLatency
from headway.runtime.settings_table import Span
from headway.server.alerts.rule_set import AnyRuleSet, Facts, RuleSet
from headway.server.alerts.rules import (
    FindingTexts,
    Grows,
    Lasting,
    Lasts,
    Least,
    Now,
    Rule,
    Severity,
    ThresholdTable,
)


class AlertSettings(ThresholdTable):
    """Recipients, rules and thresholds of alerts.

    Attributes:
        urls: apprise URLs that alerts are sent to, in addition to the log.
        off: names of disabled rules.
        runbooks: the part of an alert's link before `#` and the rule's name.
        each_ms: interval between two checks.
        lane_latency_for_ms: how long a lane must miss its target.
        dead_jobs_more_than: number of new dead jobs that a lane may have without an alert.
        dead_jobs_within_ms: how long a dead job counts as new.
        no_worker_for_ms: how long a lane with due jobs may have no worker.
        store_away_for_ms: how long the store may be unavailable.
        horizon_within_ms: how far ahead the hours of a gate must be known.
    """

    urls: tuple[str, ...] = Field(default=(), repr=False)
    off: frozenset[str] = frozenset()
    runbooks: str = "docs/how-to/observe.md"
    each_ms: Annotated[Span, Field(ge=100)] = 10_000
    lane_latency_for_ms: Span = 60_000
    dead_jobs_more_than: Least = 0
    dead_jobs_within_ms: Span = 900_000
    no_worker_for_ms: Span = 60_000
    store_away_for_ms: Span = 15_000
    horizon_within_ms: Span = 3 * 86_400_000


STORE_AWAY = "store_away"
OTHERS_FACTOR = 3
"""Servers other than the leader wait this many times as long before they report an outage.

They report it at all because the leader may be down as well.
"""


def engine_rule_set(settings: AlertSettings) -> AnyRuleSet:
    """Return the engine's rules as a rule set; they evaluate the facts unchanged."""

    async def unchanged(facts: Facts) -> Facts:
        return facts

    return RuleSet(rules=lambda: rules(settings), read=unchanged, runbooks=settings.runbooks)


def rules(settings: AlertSettings) -> tuple[Rule[Facts], ...]:
    """Return the rules of the engine, including disabled ones."""
    conditions = _Conditions(settings)
    # Jobs that were dead before the first check are not counted; retried and forgotten jobs are
    # not subtracted.
    dead: Grows[Facts] = Grows(
        "dead_jobs",
        Severity.P2,
        settings.dead_jobs_within_ms,
        _dead,
        lambda grown: conditions.dead_jobs(grown, dead.seen or {}),
    )
    return (
        Now(STORE_AWAY, Severity.P0, conditions.store_away),
        Lasts("no_worker", Severity.P1, settings.no_worker_for_ms, _without_worker),
        Lasts("lane_latency", Severity.P1, settings.lane_latency_for_ms, _late_lanes),
        dead,
        Now("horizon", Severity.P2, conditions.horizon),
    )


@dataclass(frozen=True, slots=True)
class _Conditions:
    """The conditions of the rules that have thresholds."""

    at: AlertSettings

    def store_away(self, facts: Facts) -> FindingTexts:
        """Report a store that does not respond, or that is not the same as before."""
        if isinstance(facts.fault, StoreChanged):
            # The store has responded, and waiting does not help: alert at once.
            return {"store": f"{facts.fault.message}; {facts.fault.hint}"}
        patience = self.at.store_away_for_ms * (1 if facts.leads else OTHERS_FACTOR)
        if facts.fault is None or facts.away_ms < patience:
            return {}
        seconds = facts.away_ms // 1000
        return {"store": f"the store has not responded for {seconds} s: {facts.fault.message}"}

    def dead_jobs(self, grown: Mapping[str, int], dead: Mapping[str, int]) -> FindingTexts:
        """Report lanes in which too many jobs died recently."""
        within = format_duration(self.at.dead_jobs_within_ms)
        return {
            lane: f"{'1 job' if new == 1 else f'{new} jobs'} in the lane {lane} died within "
            f"{within}; the lane has {all_dead} dead job{'s' if all_dead != 1 else ''}"
            for lane, new in grown.items()
            for all_dead in (dead.get(lane, 0),)
            if new > self.at.dead_jobs_more_than
        }

    def horizon(self, facts: Facts) -> FindingTexts | None:
        """Report gates whose hours are about to end; past its horizon a gate is closed."""
        if facts.overview is None:
            return None
        now = facts.overview.stats.now
        return {
            gate.name: _horizon_text(gate.name, gate.horizon_at - now)
            for gate in facts.overview.gates
            if gate.horizon_at is not None and gate.horizon_at - now < self.at.horizon_within_ms
        }


def _horizon_text(gate: str, left: int) -> str:
    if left <= 0:
        return f"the known hours of the gate {gate} have ended: it is closed"
    return f"the hours of the gate {gate} are known for only {format_duration(left)} ahead"


def _dead(facts: Facts) -> Mapping[str, int] | None:
    if facts.overview is None:
        return None
    return {lane.name: lane.counts.get("dead", 0) for lane in facts.overview.lanes}


def _late_lanes(facts: Facts) -> Lasting | None:
    """Return the lanes that miss their latency target."""
    if facts.overview is None:
        return None
    texts = {lane.lane: _latency_text(lane) for lane in facts.latencies if lane.breached}
    return {lane: lambda _, text=text: text for lane, text in texts.items()}


def _latency_text(lane: LaneLatency) -> str:
    parts = [f"the lane {lane.lane} misses its target of {format_duration(lane.target_ms or 0)}"]
    if lane.p95_ms is not None:
        parts.append(f"95% of jobs start within {format_duration(lane.p95_ms)}")
    if lane.head_ms is not None:
        parts.append(f"the job in front has waited {format_duration(lane.head_ms)}")
    if lane.handlers_missing:
        parts.append("only a free handler is missing")
    return "; ".join(parts)


def _without_worker(facts: Facts) -> Lasting | None:
    """Return the lanes with due jobs and no live worker, except paused ones."""
    if facts.overview is None:
        return None
    now = facts.overview.stats.now
    texts = {
        lane.name: f"no worker serves the lane {lane.name}, where a job has been due for "
        f"{format_duration(now - lane.oldest_due_at)}"
        for lane in facts.overview.lanes
        if lane.oldest_due_at is not None
        and lane.oldest_due_at <= now
        and not lane.workers
        and not lane.paused
    }
    return {lane: lambda _, text=text: text for lane, text in texts.items()}
