"""An address of apprise: one of the services that it knows, sent to by blocking calls.

Its URL is never shown or logged: in many of them the path is the secret.
"""

from __future__ import annotations

import logging

from apprise import Apprise, NotifyFormat, NotifyType

from headway.core.errors import InvalidValue

_QUIET = {"apprise": logging.CRITICAL, "urllib3": logging.INFO}
"""Loggers that show addresses below these levels; apprise does of one that it cannot read."""


def is_known(url: str) -> bool:
    """Return whether apprise knows a service of this URL; nothing is connected."""
    _be_quiet()
    return Apprise.instantiate(url) is not None  # pyright: ignore[reportUnknownMemberType]  (its dicts are bare)


def _be_quiet() -> None:
    for logger, level in _QUIET.items():
        logging.getLogger(logger).setLevel(level)


class AppriseAddress:
    """Sends to one address of apprise."""

    def __init__(self, url: str, name: str) -> None:
        """Read the address; nothing is connected.

        Args:
            url: as apprise reads it; may hold a password.
            name: of the address, for people, such as the setting that holds it.

        Raises:
            InvalidValue: apprise knows no such address.
        """
        _be_quiet()
        self._apprise = Apprise()
        if not self._apprise.add(url):  # pyright: ignore[reportUnknownMemberType]  (as above)
            message = f"{name} is no address that apprise knows"
            raise InvalidValue(message, hint="such as mailto://, slack:// or json://")

    def send(self, title: str, text: str, kind: NotifyType) -> bool:
        """Send a text, once; blocks until the service has answered or apprise gives up.

        Args:
            title: a line; may be empty.
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
