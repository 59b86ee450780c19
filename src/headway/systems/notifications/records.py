"""The system's tables: recipients, opt-outs, message templates, and dedupe keys.

Each send reads its current recipient and template; concurrent sends share the queries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from alembic import op
from sqlalchemy import (
    JSON,
    BigInteger,
    CursorResult,
    Executable,
    Index,
    LargeBinary,
    String,
    Table,
    Text,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, mapped_column

from headway.core.gates.hours import hours_spec, intervals
from headway.systems.directory.database import Directory
from headway.systems.directory.records import R, RecordColumns
from headway.systems.directory.schemas import Schema, naming, tally_table
from headway.systems.notifications.batches import Batches
from headway.systems.notifications.notification import NAME, Channel

DIGEST_BYTES = 16
"""Size of a dedupe key's digest: two among a billion are equal with a probability of 1 in 10^21."""


class Base(DeclarativeBase):
    """The tables of this system."""

    metadata = naming()


class OptOut(Base):
    """An opt-out by the holder of a phone number or e-mail address, by STOP or unsubscribe link.

    It applies to every recipient with this address, and stays when recipients are removed.
    """

    __tablename__ = "notify_opt_outs"

    address: Mapped[str] = mapped_column(String(320), primary_key=True)
    opt_out: Mapped[str] = mapped_column(String(64), primary_key=True)

    __table_args__ = ({"sqlite_with_rowid": False},)


KEEP_OPT_OUT = text(
    "INSERT INTO notify_opt_outs (address, opt_out) VALUES (lower(:address), :opt_out) "
    "ON CONFLICT DO NOTHING"
)
"""Adds an `OptOut`, unless it exists."""
_BY_EMAIL = "notify_recipients_by_email"


class Recipient(RecordColumns, Base):
    """A recipient; `recipients.RecipientView` describes the columns.

    Attributes:
        by_address: the opt-outs of its addresses, separated by spaces; None for none.
    """

    __tablename__ = "notify_recipients"

    tz: Mapped[str] = mapped_column(String(64))
    preferences: Mapped[dict[str, Any]] = mapped_column(JSON)
    devices: Mapped[list[str]] = mapped_column(JSON)
    email: Mapped[str | None] = mapped_column(String(320))
    phone: Mapped[str | None] = mapped_column(String(16), index=True)
    webhook_url: Mapped[str | None] = mapped_column(Text)
    apprise: Mapped[str | None] = mapped_column(Text)
    by_address: Mapped[str | None] = column_property(
        select(func.aggregate_strings(OptOut.opt_out, " "))
        .where(OptOut.address.in_((phone, func.lower(email))))
        .correlate_except(OptOut)
        .scalar_subquery()
    )

    __table_args__ = (Index(_BY_EMAIL, text("lower(email)")),)


async def change_opt_outs(
    session: AsyncSession, change: Executable, values: Mapping[str, Any]
) -> None:
    """Change the opt-outs of an e-mail address.

    All recipients with this address show them: their versions are raised, so that what was read
    before cannot overwrite the change.

    Args:
        change: inserts or deletes rows of `OptOut`.
        values: its parameters, with the address as `address`.
    """
    changed = cast("CursorResult[Any]", await session.execute(change, values))
    if changed.rowcount:
        theirs = func.lower(Recipient.email) == func.lower(values["address"])
        raised = update(Recipient).where(theirs).values(version=Recipient.version + 1)
        await session.execute(raised.execution_options(synchronize_session=False))


class MessageTemplate(RecordColumns, Base):
    """A message template; see `message_templates.TemplateView`."""

    __tablename__ = "notify_templates"

    channels: Mapped[dict[str, Any]] = mapped_column(JSON)


class DedupeKey(Base):
    """The first notification with a dedupe key, and when its window ends; see `intake`."""

    __tablename__ = "notify_keys"

    digest: Mapped[bytes] = mapped_column(LargeBinary(DIGEST_BYTES), primary_key=True)
    id: Mapped[str] = mapped_column(String(36))
    until_at: Mapped[int] = mapped_column(BigInteger, index=True)

    __table_args__ = ({"sqlite_with_rowid": False},)


STOPPED = f"{Channel.SMS}:STOP"
"""The opt-out by STOP, which is separate because START revokes only this one."""


def opt_outs_of(recipient: Recipient) -> Collection[str]:
    """Return a recipient's opt-outs: those of its preferences and of its addresses."""
    own = recipient.preferences.get("opt_out", ())
    return list(dict.fromkeys((*own, *(recipient.by_address or "").split())))


def opted_out(recipient: Recipient, channel: Channel, category: str) -> str:
    """Return the opt-out that forbids a send, or an empty string.

    Urgent categories are no exception: a recipient who wrote STOP gets no one-time password either.
    """
    opt_outs = opt_outs_of(recipient)
    tries = (channel, f"{channel}:STOP", f"{channel}:{category}", f"*:{category}")
    return next((str(one) for one in tries if one in opt_outs), "")


def quiet_until(recipient: Recipient, now: int) -> int | None:
    """Return when the recipient's quiet hours end, ms UTC; None if there are none now."""
    spans = recipient.preferences.get("quiet_hours")
    if not spans:
        return None
    found = intervals(hours_spec(spans), recipient.tz, now, now + 1)
    return found[0][1] if found else None


def addresses(recipient: Recipient, channel: Channel) -> Sequence[str]:
    """Return a recipient's addresses in a channel: its devices, each once, or else at most one."""
    if channel is Channel.PUSH:
        return tuple(dict.fromkeys(recipient.devices))
    one = cast("str | None", getattr(recipient, _COLUMNS[channel]))
    return () if one is None else (one,)


def without_address(recipient: Recipient, channel: Channel, address: str) -> dict[str, Any]:
    """Return the changes that remove an address; empty if the recipient does not have it."""
    known = addresses(recipient, channel)
    # A provider may report an address in lower case.
    kept = [one for one in known if one.casefold() != address.casefold()]
    if len(kept) == len(known):
        return {}
    return {"devices": kept} if channel is Channel.PUSH else {_COLUMNS[channel]: None}


_COLUMNS = {
    Channel.SMS: "phone",
    Channel.EMAIL: "email",
    Channel.WEBHOOK: "webhook_url",
    Channel.APPRISE: "apprise",
}


MOST_READ = 500
"""Maximum sends whose records are read together."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The records read for one send; None if a record does not exist or was not requested."""

    recipient: Recipient | None
    template: MessageTemplate | None


class RecordReader:
    """Batches the reads of concurrent handlers; what a call returns was read after it started."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._batches = Batches(self._read, MOST_READ)

    async def read(self, recipient: str, template: str | None) -> _Found:
        """Read a recipient and a template."""
        return await self._batches.ask((recipient, template))

    async def _read(self, asked: Sequence[tuple[str, str | None]]) -> Sequence[_Found]:
        named = {template for _, template in asked if template is not None}
        async with self._directory.read() as session:
            recipients = await _by_id(session, Recipient, {recipient for recipient, _ in asked})
            templates = await _by_id(session, MessageTemplate, named) if named else {}
        return [
            _Found(recipients.get(recipient), templates.get(template or ""))
            for recipient, template in asked
        ]


async def _by_id(session: AsyncSession, table: type[R], ids: set[str]) -> dict[str, R]:
    return {one.id: one for one in await session.scalars(select(table).where(table.id.in_(ids)))}


tally_table("notify_tally", Base.metadata)


def _opt_outs() -> None:
    """Add the opt-outs by address, with those that recipients have from a STOP or a link.

    The recipients keep theirs, for processes of the previous version.
    """
    db = op.get_bind()
    cast("Table", OptOut.__table__).create(db)
    stored = Recipient.preferences.cast(Text)
    asked = select(Recipient.phone, Recipient.email, Recipient.preferences)
    asked = asked.where(or_(stored.contains(STOPPED), stored.contains(f'"{Channel.EMAIL}:')))
    for phone, email, preferences in db.execute(asked).all():
        for one in preferences.get("opt_out", ()):
            is_email = one.startswith(f"{Channel.EMAIL}:")
            address = phone if one == STOPPED else email if is_email else None
            if address is not None:
                db.execute(KEEP_OPT_OUT, {"address": address, "opt_out": one})


def _by_email() -> None:
    op.create_index(_BY_EMAIL, "notify_recipients", [text("lower(email)")], if_not_exists=True)


SCHEMA = Schema(name=NAME, metadata=Base.metadata, upgrades={"0002": _opt_outs, "0003": _by_email})
"""The tables of this system."""
