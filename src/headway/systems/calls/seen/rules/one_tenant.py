"""one_tenant: one reseller has nearly all that waits."""

from __future__ import annotations

from collections.abc import Sequence

from headway.server.alerts.alert import Severity
from headway.server.alerts.rule import Finding
from headway.systems.calls.seen.sight import Sight


class OneTenant:
    """Finds a reseller with nearly all leads that are due and wait, while others wait too.

    Where more than 500 wait, the share is that among the first and the last to come.
    """

    name = "one_tenant"
    severity = Severity.P3

    def __init__(self, above: float, least: int) -> None:
        """Makes the rule.

        Args:
            above: a share of what waits, from 0 to 1.
            least: so many leads must wait.
        """
        self._above = above
        self._least = least

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The reseller that dominates, if there is one."""
        tenant, share = facts.backlog.largest
        if share <= self._above or facts.backlog.waiting < self._least:
            return ()
        others = len(facts.backlog.by_tenant) - 1
        text = (
            f"{share:.0%} of the leads that wait are of the reseller {tenant}, and {others} others "
            "wait too"
        )
        return (Finding(subject=tenant or "none", text=text),)
