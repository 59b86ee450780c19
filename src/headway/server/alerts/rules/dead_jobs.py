"""dead_jobs: jobs of a lane have died."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.facts import Facts
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
        self._seen: dict[str, int] | None = None
        self._grown: dict[str, deque[tuple[int, int]]] = {}

    def look(self, facts: Facts) -> Sequence[Finding] | None:
        """The lanes with too many new ones."""
        if facts.overview is None:
            return None
        dead = {lane.name: lane.counts.get("dead", 0) for lane in facts.overview.lanes}
        before, self._seen = self._seen, dead
        for lane, count in dead.items():
            grown = 0 if before is None else count - before.get(lane, 0)
            if grown > 0:
                self._grown.setdefault(lane, deque()).append((facts.at, grown))
        return [
            Finding(subject=lane, text=self._text(lane, new, dead.get(lane, 0)))
            for lane, new in self._new(facts.at).items()
            if new > self._more_than
        ]

    def _new(self, at: int) -> dict[str, int]:
        """How many are new, by lane."""
        for lane, grown in list(self._grown.items()):
            while grown and at - grown[0][0] > self._within_ms:
                grown.popleft()
            if not grown:
                del self._grown[lane]
        return {lane: sum(count for _, count in grown) for lane, grown in self._grown.items()}

    def _text(self, lane: str, new: int, dead: int) -> str:
        jobs = "1 job" if new == 1 else f"{new} jobs"
        within = format_duration(self._within_ms)
        return f"{jobs} of the lane {lane} died within {within}; it holds {dead} dead ones"
