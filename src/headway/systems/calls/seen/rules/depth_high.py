"""depth_high: very many leads wait."""

from __future__ import annotations

from collections.abc import Sequence

from headway.server.alerts.alert import Severity
from headway.server.alerts.rule import Finding
from headway.systems.calls.seen.sight import Sight


class DepthHigh:
    """Finds that more leads are due and wait than is borne."""

    name = "depth_high"
    severity = Severity.P2

    def __init__(self, above: int) -> None:
        """Makes the rule.

        Args:
            above: so many leads are borne.
        """
        self._above = above

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The backlog, if it is too deep."""
        overdue = facts.backlog.overdue
        if overdue <= self._above:
            return ()
        text = f"{overdue} leads are due and wait, above {self._above}"
        return (Finding(subject="backlog", text=text),)
