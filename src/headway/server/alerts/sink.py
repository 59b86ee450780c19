"""A sink: where alerts go. The log is always one."""

from __future__ import annotations

from typing import Protocol

import structlog

from headway.server.alerts.alert import Alert, Severity

_log = structlog.stdlib.get_logger("headway.alerts")


class Sink(Protocol):
    """Where alerts go."""

    def tell(self, alert: Alert) -> None:
        """Takes an alert; returns at once, and never fails."""
        ...

    def close(self, drain_s: float = 0) -> None:
        """Takes no more; what is not sent after so many seconds is given up."""
        ...


class LogSink:
    """Writes alerts to the log."""

    def tell(self, alert: Alert) -> None:
        """Writes one line."""
        tell = _log.error if alert.severity in {Severity.P0, Severity.P1} else _log.warning
        if alert.healed:
            tell = _log.info
        tell(
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
