"""dead_jobs: jobs of a lane have died."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.facts import Facts
from headway.server.alerts.growth import Growth
from headway.server.alerts.rule import Finding


class DeadJobs:
    """Finds lanes whose number of dead jobs has grown lately.

    What was dead before the first look is not counted, and what is retried or forgotten is not
    taken off.
    """

    name = "dead_jobs"
    severity = Severity.P2

    def __init__(self, more_than: int, within_ms: int) -> None:
        """Makes the rule.

        Args:
            more_than: so many new ones are borne.
            within_ms: how long a new one counts.
        """
        self._more_than = more_than
        self._within_ms = within_ms
        self.memory = Growth(within_ms)

    def look(self, facts: Facts) -> Sequence[Finding] | None:
        """The lanes with too many new ones."""
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
