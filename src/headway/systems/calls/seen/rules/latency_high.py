"""latency_high: calls are dialled late though nothing holds them back."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.runtime.latency import percentile
from headway.server.alerts.alert import Severity
from headway.server.alerts.rule import Finding, Lasting
from headway.systems.calls.seen.sight import Sight

FREE = 0.05
"""A share of the channels; where fewer are free, lines are what leads wait for."""


class LatencyHigh:
    """Finds that calls are dialled late while lines are free; waits behind gates are left out."""

    name = "latency_high"
    severity = Severity.P1

    def __init__(self, above_ms: int, least: int, for_ms: int) -> None:
        """Makes the rule.

        Args:
            above_ms: of which 99 of 100 calls must stay below.
            least: so many calls must have been dialled lately.
            for_ms: how long it must last.
        """
        self._above_ms = above_ms
        self._least = least
        self._for_ms = for_ms
        self.memory = Lasting()

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The dial, if it has been late for so long."""
        times = facts.dials.due_to_dial_ms
        p99 = percentile(times, 99)
        many, slow = len(times) >= self._least, p99 is not None and p99 > self._above_ms
        late = many and slow and _lines_are_free(facts)
        return [
            Finding(
                subject=subject,
                text=f"99 of 100 calls are dialled within {format_duration(p99 or 0)} of being "
                f"due, of {len(times)} lately; {format_duration(self._above_ms)} is wanted",
            )
            for subject, ms in self.memory.note(["dial"] if late else [], facts.at).items()
            if ms >= self._for_ms
        ]


def _lines_are_free(facts: Sight) -> bool:
    capacity = sum(line.capacity for pool in facts.pools for line in pool.lines if line.usable)
    free = sum(pool.free for pool in facts.pools)
    return free > 0 and free >= FREE * capacity
