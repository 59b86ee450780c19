"""Alerts: severities, the record of one, and the sinks that receive them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import structlog

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
"""How long after an alert it is sent again, if it still applies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """One thing that is wrong, or is not any more.

    Attributes:
        subject: what it is about, such as a lane.
        text: one sentence with the facts.
        runbook: where it says what to do.
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


_log = structlog.stdlib.get_logger("headway.alerts")


class Sink(Protocol):
    """Where alerts go."""

    def send(self, alert: Alert) -> None:
        """Take an alert; returns at once, and never fails."""
        ...

    def close(self, drain_s: float = 0) -> None:
        """Take no more; what is not sent after so many seconds is given up."""
        ...


class LogSink:
    """Writes alerts to the log."""

    def send(self, alert: Alert) -> None:
        """Write one line."""
        log = _log.error if alert.severity in {Severity.P0, Severity.P1} else _log.warning
        if alert.healed:
            log = _log.info
        log(
            "alert",
            rule=alert.rule,
            severity=alert.severity.value,
            subject=alert.subject,
            text=alert.text,
            runbook=alert.runbook,
            healed=alert.healed,
        )

    def close(self, drain_s: float = 0) -> None:
        """Nothing is left."""
