"""webhooks_lost: the ends of calls are not told."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.growth import Growth
from headway.server.alerts.rule import Finding
from headway.systems.calls.seen.sight import Sight
from headway.systems.calls.seen.tally import Event


class WebhooksLost:
    """Finds numbers of whose calls the end had to be asked for, or never became known."""

    name = "webhooks_lost"
    severity = Severity.P2

    def __init__(self, more_than: int, within_ms: int) -> None:
        """Makes the rule.

        Args:
            more_than: so many new ones of a number are borne.
            within_ms: how long one is new.
        """
        self._more_than = more_than
        self._within_ms = within_ms
        self.memory = Growth(within_ms)

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The numbers with too many of them."""
        grown = self.memory.note(facts.labels(Event.WEBHOOK_LOST), facts.at)
        return [
            Finding(
                subject=number,
                text=f"the end of {new} calls from {number} was not told within "
                f"{format_duration(self._within_ms)}; their lines were held until their deadlines",
            )
            for number, new in grown.items()
            if new > self._more_than
        ]
