"""no_number: leads wait for numbers of which none can be used."""

from __future__ import annotations

from collections.abc import Sequence

from headway.server.alerts.alert import Severity
from headway.server.alerts.rule import Finding, Lasting
from headway.systems.calls.seen.lines import LinePool, without_number
from headway.systems.calls.seen.sight import Sight


class NoNumber:
    """Finds pools for which leads wait, and of which no number can be used."""

    name = "no_number"
    severity = Severity.P1

    def __init__(self, for_ms: int) -> None:
        """Makes the rule.

        Args:
            for_ms: how long it must last.
        """
        self._for_ms = for_ms
        self.memory = Lasting()

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The pools that have been without a number for so long."""
        waits = facts.backlog.by_gate
        without = without_number(facts.pools, waits)
        return [
            Finding(subject=name, text=_text(without[name], waits[name]))
            for name, ms in self.memory.note(list(without), facts.at).items()
            if ms >= self._for_ms
        ]


def _text(pool: LinePool, waits: int) -> str:
    closed = next((line for line in pool.lines if line.closed), None)
    text = f"no number of {pool.name} can be used, and leads wait for it ({waits} were seen)"
    if not pool.lines:
        return f"{text}; it has none"
    if closed is not None:
        return f"{text}; {closed.number} is {closed.closed}"
    return f"{text}; all {len(pool.lines)} are without a channel"
