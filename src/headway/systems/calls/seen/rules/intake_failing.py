"""intake_failing: leads are turned away by our own fault."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.growth import Growth
from headway.server.alerts.rule import Finding
from headway.systems.calls.seen.sight import Sight
from headway.systems.calls.seen.tally import Event


class IntakeFailing:
    """Finds that too large a share of the requests that bring leads is answered with 500 or more.

    What callers do wrong, such as a bad number, is not counted.
    """

    name = "intake_failing"
    severity = Severity.P1

    def __init__(self, above: float, least: int, within_ms: int) -> None:
        """Makes the rule.

        Args:
            above: a share, from 0 to 1.
            least: so many must have failed.
            within_ms: how long a request counts.
        """
        self._above = above
        self._least = least
        self._within_ms = within_ms
        self.memory = Growth(within_ms)

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The intake, if it fails."""
        counts = {
            one: facts.totals.get((one, ""), 0) for one in (Event.INTAKE, Event.INTAKE_FAILED)
        }
        grown = self.memory.note({str(one): count for one, count in counts.items()}, facts.at)
        failed, all_of_them = grown.get(Event.INTAKE_FAILED, 0), grown.get(Event.INTAKE, 0)
        if failed < max(1, self._least) or failed <= self._above * all_of_them:
            return ()
        within = format_duration(self._within_ms)
        text = f"{failed} of {all_of_them} requests that brought leads failed within {within}"
        return (Finding(subject="intake", text=text),)
