"""no_worker: jobs are due in a lane that no worker serves."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.facts import Facts
from headway.server.alerts.rule import Finding, Lasting


class NoWorker:
    """Finds lanes with due jobs and no live worker; not those that somebody paused."""

    name = "no_worker"
    severity = Severity.P1

    def __init__(self, for_ms: int) -> None:
        """Makes the rule.

        Args:
            for_ms: how long it must last.
        """
        self._for_ms = for_ms
        self.memory = Lasting()

    def look(self, facts: Facts) -> Sequence[Finding] | None:
        """The lanes that have been without a worker for so long."""
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
        lasting = self.memory.note(list(idle), facts.at)
        return [
            Finding(
                subject=name,
                text=f"no worker serves the lane {name}, where a job has been due for "
                f"{format_duration(idle[name])}",
            )
            for name, ms in lasting.items()
            if ms >= self._for_ms
        ]
