"""store_away: the store does not answer."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.errors import StoreChanged
from headway.server.alerts.alert import Severity
from headway.server.alerts.facts import Facts
from headway.server.alerts.rule import Finding

OTHERS = 3
"""Servers that do not lead wait so many times as long: the one that does may be away as well."""


class StoreAway:
    """Finds a store that does not answer, or that is not the one it was."""

    name = "store_away"
    severity = Severity.P0

    def __init__(self, for_ms: int) -> None:
        """Makes the rule.

        Args:
            for_ms: how long it must last.
        """
        self._for_ms = for_ms

    def look(self, facts: Facts) -> Sequence[Finding]:
        """The store, if it has been away for so long."""
        if isinstance(facts.fault, StoreChanged):
            # It has answered, and no patience heals it.
            text = f"{facts.fault.message}; {facts.fault.hint}"
            return (Finding(subject="store", text=text),)
        patience = self._for_ms if facts.leads else OTHERS * self._for_ms
        if facts.fault is None or facts.away_ms < patience:
            return ()
        seconds = facts.away_ms // 1000
        text = f"the store has not answered for {seconds} s: {facts.fault.message}"
        return (Finding(subject="store", text=text),)
