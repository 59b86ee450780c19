"""horizon: opening hours are known for too short a time ahead."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.facts import Facts
from headway.server.alerts.rule import Finding


class Horizon:
    """Finds gates of opening hours that nobody extends; past their horizon they are closed."""

    name = "horizon"
    severity = Severity.P2

    def __init__(self, within_ms: int) -> None:
        """Makes the rule.

        Args:
            within_ms: so near is too near.
        """
        self._within_ms = within_ms

    def look(self, facts: Facts) -> Sequence[Finding] | None:
        """The gates whose horizon is too near."""
        if facts.overview is None:
            return None
        now = facts.overview.stats.now
        return [
            Finding(subject=gate.name, text=_text(gate.name, gate.horizon_at - now))
            for gate in facts.overview.gates
            if gate.horizon_at is not None and gate.horizon_at - now < self._within_ms
        ]


def _text(gate: str, left: int) -> str:
    if left <= 0:
        return f"the hours of the gate {gate} are known no more: it is closed"
    return f"the hours of the gate {gate} are known for {format_duration(left)} only"
