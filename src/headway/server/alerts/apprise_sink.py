"""Sending to any service that apprise knows.

A URL is never shown or logged: in many of them the path is the secret.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from queue import Empty, Full, Queue

from apprise import Apprise, NotifyFormat, NotifyType

from headway.core.errors import InvalidValue
from headway.server.alerts.watch import Alert

_QUIET = {"apprise": logging.CRITICAL, "urllib3": logging.INFO}
"""Loggers that show addresses below these levels; apprise does of one that it cannot read."""


def is_known(url: str) -> bool:
    """Return whether apprise knows a service of this URL; nothing is connected."""
    _be_quiet()
    return Apprise.instantiate(url) is not None  # pyright: ignore[reportUnknownMemberType]  (its dicts are bare)


def beginning(url: str) -> str:
    """Return what may be shown of a URL that may hold a secret: which service it is of."""
    return f"{url.partition(':')[0]}://…"


def _be_quiet() -> None:
    for logger, level in _QUIET.items():
        logging.getLogger(logger).setLevel(level)


class AppriseAddress:
    """Sends to one address of apprise."""

    def __init__(self, url: str, name: str) -> None:
        """Read the address; nothing is connected.

        Args:
            url: as apprise reads it; may hold a password.
            name: of the address in messages, such as the setting that holds it.

        Raises:
            InvalidValue: apprise knows no such address.
        """
        _be_quiet()
        self._apprise = Apprise()
        if not self._apprise.add(url):  # pyright: ignore[reportUnknownMemberType]  (as above)
            message = f"{name} is not an address that apprise supports"
            raise InvalidValue(message, hint="such as mailto://, slack:// or json://")

    def send(self, title: str, text: str, kind: NotifyType) -> bool:
        """Send a text, once; blocks until the service has answered or apprise gives up.

        Args:
            text: plain.
            kind: how bad it is, for services that show it.

        Returns:
            Whether the service confirmed it. Apprise does not say whether one that did not confirm
            it was reached.
        """
        sent = self._apprise.notify(  # pyright: ignore[reportUnknownMemberType]  (as above)
            title=title, body=text, notify_type=kind, body_format=NotifyFormat.TEXT
        )
        return bool(sent)


MOST_WAITING = 100
"""Alerts that wait for a slow service; further ones are given up, and logged."""

_log = logging.getLogger("headway.alerts")


class AppriseSink:
    """Sends alerts to one address, on its own thread, without waiting for the result."""

    def __init__(self, url: str, place: str) -> None:
        """Start the thread.

        Args:
            url: of apprise; may contain a password, and is never shown.
            place: where it was written, for messages.

        Raises:
            InvalidValue: apprise knows no such address.
        """
        self._place = place
        self._address = AppriseAddress(url, place)
        self._waiting: Queue[Alert | None] = Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._send_all, name=place, daemon=True)
        self._thread.start()

    def send(self, alert: Alert) -> None:
        """Take an alert."""
        try:
            self._waiting.put_nowait(alert)
        except Full:
            _log.warning("%s is too slow: an alert of %s is given up", self._place, alert.rule)

    def close(self, drain_s: float = 0) -> None:
        """End the thread after what waits, if there is time, else after the current alert."""
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
            except Exception as error:  # noqa: BLE001  (a service that fails must not stop the thread)
                _log.warning("%s failed: %s", self._place, type(error).__name__)
            else:
                if not sent:
                    _log.warning("%s did not take an alert of %s", self._place, alert.rule)


def _type(alert: Alert) -> NotifyType:
    if alert.healed:
        return NotifyType.SUCCESS
    return NotifyType.FAILURE if alert.is_bad else NotifyType.WARNING
