"""The system `notifications`: messages by push, SMS, e-mail and webhook, now or at their time."""

from __future__ import annotations

from collections.abc import Mapping

from headway.systems.directory.alerts.place import SCHEMA as ALERTS
from headway.systems.directory.database import Schema
from headway.systems.directory.tally import Tally
from headway.systems.notifications.desk import Desk
from headway.systems.notifications.metrics import read_thresholds
from headway.systems.notifications.names import NAME, Channel
from headway.systems.notifications.reading import Reader
from headway.systems.notifications.senders.build import make_senders
from headway.systems.notifications.senders.sender import Sender
from headway.systems.notifications.settings import read_settings
from headway.systems.notifications.system import Notifications
from headway.systems.parts import Parts

SCHEMAS = (Schema(name=NAME, package=f"{__name__}.migrations"), ALERTS)
"""The tables that it needs in the directory."""


class _Senders:
    """Closes the senders with what systems share."""

    def __init__(self, senders: Mapping[Channel, Sender]) -> None:
        self._senders = senders

    async def open(self) -> None:
        """Nothing: each connects when it first sends."""

    async def close(self) -> None:
        """Close the connections of all."""
        for sender in self._senders.values():
            await sender.close()


def make(
    settings: Mapping[str, object],
    parts: Parts,
    senders: Mapping[Channel, Sender] | None = None,
) -> Notifications:
    """Make the system.

    Args:
        settings: the table [notifications] of headway.toml.
        parts: what it shares with other systems.
        senders: by channel; those of the settings if not given.

    Returns:
        The system; nothing is opened or declared.

    Raises:
        InvalidValue: a setting is unknown or unusable.
    """
    read = read_settings(settings)
    for schema in SCHEMAS:
        parts.directory.needs(schema)
    tally = Tally(parts.directory, parts.timing, "notify_tally")
    parts.also(tally)
    if senders is None:
        made = make_senders(read.senders, parts)
        senders = {Channel(name): sender for name, sender in made.items()}
    parts.also(_Senders(senders))
    desk = Desk(
        settings=read,
        parts=parts,
        senders=senders,
        tally=tally,
        reader=Reader(parts.directory),
        thresholds=read_thresholds(read.alerts),
    )
    return Notifications(desk)
