"""dispatch_halted: leads could go, and do not."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.rule import Finding, Lasting
from headway.systems.calls.seen.sight import Sight


class DispatchHalted:
    """Finds that leads are due, a line is free, every gate that they need is open, and none goes.

    What somebody has closed by hand, and what waits for its hours, is not counted.
    """

    name = "dispatch_halted"
    severity = Severity.P0

    def __init__(self, more_than: int, for_ms: int) -> None:
        """Makes the rule.

        Args:
            more_than: so many leads are borne.
            for_ms: how long there must be more.
        """
        self._more_than = more_than
        self._for_ms = for_ms
        self.memory = Lasting()

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The dispatch, if it has been halted for so long."""
        free = sum(pool.free for pool in facts.pools)
        ready = facts.backlog.ready
        halted = ["dispatch"] if free and ready > self._more_than else []
        return [
            Finding(
                subject=subject,
                text=f"{ready} leads could go and none does, though {free} channels are free, for "
                f"{format_duration(ms)} now; {_workers(facts)}",
            )
            for subject, ms in self.memory.note(halted, facts.at).items()
            if ms >= self._for_ms
        ]


def _workers(facts: Sight) -> str:
    live = sum(worker.lease_until > facts.now for worker in facts.workers)
    return f"{live} workers serve the lane" if live else "no worker serves the lane"
