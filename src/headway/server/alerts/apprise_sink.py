"""A sink that tells people by any of the services that apprise knows."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from queue import Empty, Full, Queue

from apprise import NotifyType

from headway.server.alerts.alert import Alert, Severity
from headway.server.alerts.apprise_address import AppriseAddress

MOST_WAITING = 100
"""Alerts that wait for a slow service; further ones are given up, and logged."""

_log = logging.getLogger("headway.alerts")


class AppriseSink:
    """Sends alerts to one address, on a thread of its own that nobody waits for."""

    def __init__(self, url: str, place: str) -> None:
        """Starts the thread.

        Args:
            url: of apprise; may hold a password, and is never told.
            place: where it was written, for people.

        Raises:
            InvalidValue: apprise knows no such address.
        """
        self._place = place
        self._address = AppriseAddress(url, place)
        self._waiting: Queue[Alert | None] = Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._send_all, name=place, daemon=True)
        self._thread.start()

    def tell(self, alert: Alert) -> None:
        """Takes an alert."""
        try:
            self._waiting.put_nowait(alert)
        except Full:
            _log.warning("%s is too slow: an alert of %s is given up", self._place, alert.rule)

    def close(self, drain_s: float = 0) -> None:
        """Ends the thread after what waits, if there is time, else after the current alert."""
        if drain_s > 0:
            with suppress(Full):
                self._waiting.put_nowait(None)
                self._thread.join(drain_s)
                return
        while True:
            try:
                self._waiting.get_nowait()
            except Empty:
                break
        self._waiting.put_nowait(None)

    def _send_all(self) -> None:
        while (alert := self._waiting.get()) is not None:
            try:
                text = f"{alert.text}\n{alert.runbook}"
                sent = self._address.send(alert.title, text, _type(alert))
            except Exception as error:  # noqa: BLE001  (a service that fails stops nobody)
                _log.warning("%s failed: %s", self._place, type(error).__name__)
            else:
                if not sent:
                    _log.warning("%s did not take an alert of %s", self._place, alert.rule)


def _type(alert: Alert) -> NotifyType:
    if alert.healed:
        return NotifyType.SUCCESS
    bad = alert.severity in {Severity.P0, Severity.P1}
    return NotifyType.FAILURE if bad else NotifyType.WARNING
