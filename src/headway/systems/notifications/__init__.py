"""The system `notifications`: messages by push, SMS, e-mail and webhook, now or at their time."""

from __future__ import annotations

from collections.abc import Mapping

from headway.server.alerts.declared import thresholds_of
from headway.systems.directory.alerts.place import SCHEMA as ALERTS
from headway.systems.directory.database import Schema
from headway.systems.directory.tally import Tally
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.metrics import Thresholds
from headway.systems.notifications.names import NAME, Channel
from headway.systems.notifications.reading import Reader
from headway.systems.notifications.senders.build import make_senders
from headway.systems.notifications.senders.sender import Sender
from headway.systems.notifications.settings import read_settings
from headway.systems.notifications.system import Notifications
from headway.systems.parts import Parts

SCHEMAS = (Schema(name=NAME, package=f"{__name__}.migrations"), ALERTS)
"""The tables that it needs in the directory."""


def make(
    settings: Mapping[str, object],
    parts: Parts,
    senders: Mapping[Channel, Sender] | None = None,
) -> Notifications:
    """Make the system, of the table [notifications]; nothing is opened or declared.

    Args:
        settings: as the file or the environment has them.
        parts: shared with other systems.
        senders: instead of those of the settings.

    Raises:
        InvalidValue: a setting is unknown or unusable.
    """
    read = read_settings(settings)
    for schema in SCHEMAS:
        parts.directory.needs(schema)
    tally = Tally(parts.directory, parts.timing, "notify_tally")
    parts.also(tally)
    context = NotifyContext(
        settings=read,
        parts=parts,
        senders=make_senders(read.senders, parts) if senders is None else senders,
        tally=tally,
        reader=Reader(parts.directory),
        thresholds=thresholds_of("notifications.alerts", Thresholds, read.alerts),
    )
    parts.also(context)
    return Notifications(context)
