"""workers_dying: workers are lost."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.rule import Finding
from headway.systems.calls.seen.sight import Sight


class WorkersDying:
    """Finds that many workers of calls ended without taking leave; a stop or deploy is none."""

    name = "workers_dying"
    severity = Severity.P2

    def __init__(self, above: float, within_ms: int) -> None:
        """Makes the rule.

        Args:
            above: a share of the workers, from 0 to 1.
            within_ms: how long one that was lost counts.
        """
        self._above = above
        self._within_ms = within_ms

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The workers, if too many of them were lost."""
        live = sum(worker.lease_until > facts.now for worker in facts.workers)
        lost = sum(
            # Of one that takes leave, the lease ends with its last word.
            worker.seen_at < worker.lease_until <= facts.now < worker.lease_until + self._within_ms
            for worker in facts.workers
        )
        if lost <= self._above * (live + lost):
            return ()
        within = format_duration(self._within_ms)
        text = f"{lost} of {live + lost} workers of calls were lost within {within}"
        return (Finding(subject="workers", text=text),)
