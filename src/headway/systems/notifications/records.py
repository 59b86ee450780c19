"""What the system keeps besides jobs: recipients, message templates, and keys of duplicates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from sqlalchemy import JSON, BigInteger, LargeBinary, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from headway.core.gates.hours import hours_spec, intervals, is_open
from headway.core.zone import DAY_MS
from headway.systems.directory.naming import naming
from headway.systems.directory.records import Record
from headway.systems.notifications.names import Channel

DIGEST_BYTES = 16
"""The digest size of a dedupe key: two of a billion are equal with a chance of 1 in 10^21."""


class Base(DeclarativeBase):
    """The tables of this system."""

    metadata = naming()


class Recipient(Record, Base):
    """A recipient; what the columns mean is said by `recipients.RecipientView`."""

    __tablename__ = "notify_recipients"

    tz: Mapped[str] = mapped_column(String(64))
    preferences: Mapped[dict[str, Any]] = mapped_column(JSON)
    devices: Mapped[list[str]] = mapped_column(JSON)
    email: Mapped[str | None] = mapped_column(String(320))
    phone: Mapped[str | None] = mapped_column(String(16), index=True)
    webhook_url: Mapped[str | None] = mapped_column(Text)
    apprise: Mapped[str | None] = mapped_column(Text)


class MessageTemplate(Record, Base):
    """A message template; see `message_templates.TemplateView`."""

    __tablename__ = "notify_templates"

    channels: Mapped[dict[str, Any]] = mapped_column(JSON)


class DedupeKey(Base):
    """The first notification with a dedupe key, and until when it holds it; see `intake`."""

    __tablename__ = "notify_keys"

    digest: Mapped[bytes] = mapped_column(LargeBinary(DIGEST_BYTES), primary_key=True)
    id: Mapped[str] = mapped_column(String(36))
    until_at: Mapped[int] = mapped_column(BigInteger, index=True)

    __table_args__ = ({"sqlite_with_rowid": False},)


STOPPED = f"{Channel.SMS}:STOP"
"""The opt-out by STOP, separate from others because START revokes only this one."""


def opted_out(recipient: Recipient, channel: Channel, category: str) -> str:
    """Which opt-out forbids a send; empty if none does.

    Urgent categories are no exception: a recipient who wrote STOP gets no one-time password either.
    """
    said: Collection[str] = recipient.preferences.get("opt_out", ())
    tries = (channel, f"{channel}:STOP", f"{channel}:{category}", f"*:{category}")
    return next((str(one) for one in tries if one in said), "")


def quiet_until(recipient: Recipient, now: int) -> int | None:
    """When the recipient's quiet hours end, ms UTC; None if there are none now."""
    spans = recipient.preferences.get("quiet_hours")
    if not spans:
        return None
    found = intervals(hours_spec(spans), recipient.tz, now, now + DAY_MS)
    if not is_open(found, now):
        return None
    return next(end for start, end in found if start <= now < end)


def addresses(recipient: Recipient, channel: Channel) -> Sequence[str]:
    """Where a recipient is reached by a channel; several devices, or one address, or none."""
    if channel is Channel.PUSH:
        return tuple(recipient.devices)
    one = cast("str | None", getattr(recipient, _COLUMNS[channel]))
    return () if one is None else (one,)


def without_address(recipient: Recipient, channel: Channel, address: str) -> dict[str, Any]:
    """What changes of a recipient whose address does not exist any more; empty for nothing."""
    if address not in addresses(recipient, channel):
        return {}
    if channel is Channel.PUSH:
        return {"devices": [one for one in recipient.devices if one != address]}
    return {_COLUMNS[channel]: None}


_COLUMNS = {
    Channel.SMS: "phone",
    Channel.EMAIL: "email",
    Channel.WEBHOOK: "webhook_url",
    Channel.APPRISE: "apprise",
}
