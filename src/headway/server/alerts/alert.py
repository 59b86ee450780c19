"""An alert: what is wrong, with what, how bad it is, and where to read what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MINUTE_MS = 60_000


class Severity(StrEnum):
    """How bad it is, P0 the worst."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    P3 = "P3"


AGAIN_MS = {
    Severity.P0: 5 * MINUTE_MS,
    Severity.P1: 30 * MINUTE_MS,
    Severity.P2: 15 * MINUTE_MS,
    Severity.P3: 15 * MINUTE_MS,
}
"""How long after an alert it is told again, if it still stands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """One thing that is wrong, or is not any more.

    Attributes:
        rule: that found it.
        severity: how bad it is.
        subject: what it is about, such as a lane.
        text: one sentence with the facts.
        runbook: where it says what to do.
        healed: it is over.
    """

    rule: str
    severity: Severity
    subject: str
    text: str
    runbook: str
    healed: bool = False

    @property
    def title(self) -> str:
        """A line for a subject field."""
        state = "healed" if self.healed else self.severity
        return f"[{state}] {self.rule}: {self.subject}"
