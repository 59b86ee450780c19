"""orphan_webhook: webhooks come of calls that nobody knows."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.growth import Growth
from headway.server.alerts.rule import Finding
from headway.systems.calls.seen.sight import Sight
from headway.systems.calls.seen.tally import Event


class OrphanWebhook:
    """Finds providers whose proved webhooks are of calls that no lead has made."""

    name = "orphan_webhook"
    severity = Severity.P1

    def __init__(self, more_than: int, within_ms: int) -> None:
        """Makes the rule.

        Args:
            more_than: so many new ones are borne.
            within_ms: how long one is new.
        """
        self._more_than = more_than
        self._within_ms = within_ms
        self.memory = Growth(within_ms)

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The providers with too many of them."""
        grown = self.memory.note(facts.labels(Event.WEBHOOK_ORPHAN), facts.at)
        return [
            Finding(
                subject=provider,
                text=f"{new} webhooks of {provider} within {format_duration(self._within_ms)} "
                "were of calls that nobody knows",
            )
            for provider, new in grown.items()
            if new > self._more_than
        ]
