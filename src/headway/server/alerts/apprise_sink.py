"""Notifications through any service that apprise supports.

URLs are never shown or logged, because the path is often a secret.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from queue import Empty, Queue

from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType

from headway.core.errors import InvalidValue
from headway.server.alerts.watch import DRAIN_S, Alert

_QUIET = {"apprise": logging.CRITICAL, "urllib3": logging.INFO}
"""Loggers that log URLs below these levels; apprise logs the URLs that it cannot parse."""


def is_known(url: str) -> bool:
    """Return whether apprise supports this URL, without connecting."""
    _limit_library_logs()
    return Apprise.instantiate(url) is not None  # pyright: ignore[reportUnknownMemberType]  (its dicts are bare)


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, the only part that certainly contains no secret."""
    return f"{url.partition(':')[0]}://…"


def _limit_library_logs() -> None:
    for logger, level in _QUIET.items():
        logging.getLogger(logger).setLevel(level)


class AppriseAddress:
    """An apprise URL to send notifications to."""

    def __init__(self, url: str, name: str, *, asset: AppriseAsset | None = None) -> None:
        """Parse the URL, without connecting.

        Args:
            url: an apprise URL; may contain a password.
            name: how error messages refer to the address, such as its setting.
            asset: apprise's own options; None for its defaults.

        Raises:
            InvalidValue: apprise does not support the URL.
        """
        _limit_library_logs()
        self._apprise = Apprise(asset=asset)
        if not self._apprise.add(url):  # pyright: ignore[reportUnknownMemberType]  (as above)
            message = f"{name} is not an address that apprise supports"
            raise InvalidValue(message, hint="such as mailto://, slack:// or json://")

    def send(self, title: str, text: str, kind: NotifyType) -> bool:
        """Send a plain text once; block until the service responds or apprise gives up.

        Args:
            kind: the severity, for services that show it.

        Returns:
            Whether the service confirmed it. If not, apprise does not report whether the service
            was reached.
        """
        sent = self._apprise.notify(  # pyright: ignore[reportUnknownMemberType]  (as above)
            title=title, body=text, notify_type=kind, body_format=NotifyFormat.TEXT
        )
        return bool(sent)


MOST_WAITING = 100
"""Size of the queue for a slow service; when it is full, alerts are dropped and logged."""

_log = logging.getLogger("headway.alerts")


class AppriseSink:
    """Sends alerts to one address from a background thread."""

    def __init__(self, url: str, place: str) -> None:
        """Start the thread.

        Args:
            url: an apprise URL; may contain a password, and is never shown.
            place: how messages refer to the address.

        Raises:
            InvalidValue: apprise does not support the URL.
        """
        self._place = place
        # Without its own timeout, apprise sends in this sink's thread: it would start others, for
        # which the interpreter waits at its exit, until the timeouts in the URL.
        self._address = AppriseAddress(url, place, asset=AppriseAsset(service_timeout=0))
        self._sending: Alert | None = None
        self._waiting: Queue[Alert | None] = Queue()
        self._thread = threading.Thread(target=self._send_all, name=place, daemon=True)
        self._thread.start()

    def send(self, alert: Alert) -> None:
        """Queue an alert; drop it if the queue is full."""
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put(alert)
        else:
            self._log_slow("alert dropped", alert)

    def close(self, drain_s: float = DRAIN_S) -> None:
        """Stop the thread after the queued alerts.

        After `drain_s`, drop those that are left, and do not wait for the current one.
        """
        self._waiting.put(None)
        self._thread.join(drain_s)
        if (alert := self._sending) is not None:
            self._log_slow("alert may be lost", alert)
        with suppress(Empty):
            while (alert := self._waiting.get_nowait()) is not None:
                self._log_slow("alert dropped", alert)
        self._waiting.put(None)

    def _log_slow(self, event: str, alert: Alert) -> None:
        _log.warning("%s rule=%s sink=%r: the service is too slow", event, alert.rule, self._place)

    def _send_all(self) -> None:
        while (alert := self._waiting.get()) is not None:
            self._sending = alert
            try:
                text = f"{alert.text}\n{alert.runbook}"
                sent = self._address.send(alert.title, text, _type(alert))
            except Exception as error:  # noqa: BLE001  (a failing service must not stop the thread)
                _log.warning("%s failed: %s", self._place, type(error).__name__)
            else:
                if not sent:
                    _log.warning("%s did not accept an alert of %s", self._place, alert.rule)
            self._sending = None


def _type(alert: Alert) -> NotifyType:
    if alert.healed:
        return NotifyType.SUCCESS
    return NotifyType.FAILURE if alert.is_bad else NotifyType.WARNING
