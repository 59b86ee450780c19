"""lane_latency: a lane misses its target."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.runtime.latency import LaneLatency
from headway.server.alerts.alert import Severity
from headway.server.alerts.facts import Facts
from headway.server.alerts.rule import Finding, Lasting


class LaneLatencyRule:
    """Finds lanes whose jobs start later than the lane's target allows."""

    name = "lane_latency"
    severity = Severity.P1

    def __init__(self, for_ms: int) -> None:
        """Makes the rule.

        Args:
            for_ms: how long it must last.
        """
        self._for_ms = for_ms
        self.memory = Lasting()

    def look(self, facts: Facts) -> Sequence[Finding] | None:
        """The lanes that have missed their targets for so long."""
        if facts.overview is None:
            return None
        breached = {lane.lane: lane for lane in facts.latencies if lane.breached}
        lasting = self.memory.note(list(breached), facts.at)
        return [
            Finding(subject=name, text=_text(breached[name]))
            for name, ms in lasting.items()
            if ms >= self._for_ms
        ]


def _text(lane: LaneLatency) -> str:
    parts = [f"the lane {lane.lane} misses its target of {format_duration(lane.target_ms or 0)}"]
    if lane.p95_ms is not None:
        parts.append(f"95 of 100 jobs start within {format_duration(lane.p95_ms)}")
    if lane.head_ms is not None:
        parts.append(f"the first that waits has waited {format_duration(lane.head_ms)}")
    if lane.handlers_missing:
        parts.append("it lacks nothing but a free handler")
    return "; ".join(parts)
