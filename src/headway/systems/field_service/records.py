"""What the system keeps besides jobs: technicians, users, settings, and answers by text message.

That a technician is busy is no column: it is the permit `technician:<id>`, which a job holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any, cast

from alembic import op
from pydantic import AfterValidator, Field
from sqlalchemy import (
    JSON,
    BigInteger,
    Enum,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    delete,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from headway.core.errors import InvalidValue
from headway.core.naming import MAX_NAME, check_name
from headway.systems.directory.database import Schema, collated, naming, tally_schema
from headway.systems.directory.records import ID, MAX_ID, Record
from headway.systems.field_service.request import NAME

MAX_SKILL = 64
"""Characters of a skill or a role."""

_Word = collated(2 * MAX_SKILL)


class Channel(StrEnum):
    """How a technician is asked."""

    VOICE = "voice"
    TEXT = "text"


def _words(words: type[Channel]) -> list[str]:
    return [str(one) for one in words]


class Base(DeclarativeBase):
    """The tables of this system."""

    metadata = naming()


class Technician(Record, Base):
    """A person who is offered jobs.

    Attributes:
        id: stands in the names of gates and candidates.
        phone: E.164; unique.
        lat: degrees north, to seven digits after the point.
        lon: degrees east, from -180 to below 180, to seven digits after the point.
        on_duty: whether offers come.
        idle_since: since when without a job, ms UTC; of two as near, the longer idle comes first.
    """

    __tablename__ = "field_technicians"

    phone: Mapped[str] = mapped_column(String(16), unique=True)
    lat: Mapped[float] = mapped_column(Float(53))
    lon: Mapped[float] = mapped_column(Float(53))
    skills: Mapped[list[str]] = mapped_column(JSON)
    on_duty: Mapped[bool]
    channel: Mapped[Channel] = mapped_column(
        Enum(Channel, native_enum=False, length=8, values_callable=_words)
    )
    idle_since: Mapped[int] = mapped_column(BigInteger)


class Place(Base):
    """Where a technician on duty is, once for each skill and once for none.

    It follows from the technician, and is what is searched: those with a skill lie together, in
    the order of their cells.

    Attributes:
        skill: as `skill_key` writes it; empty for requests without a skill.
        cell: the position, as `cells.cell_of` numbers it.
        skills: all of the technician's, as `held` writes them; empty where the skill is.
    """

    __tablename__ = "field_places"

    skill: Mapped[str] = mapped_column(_Word, primary_key=True)
    cell: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    idle_since: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    technician_id: Mapped[str] = mapped_column(
        ID, ForeignKey("field_technicians.id", ondelete="CASCADE"), primary_key=True
    )
    skills: Mapped[str] = mapped_column(Text)

    __table_args__ = (
        Index(None, "technician_id", "skill", unique=True),
        {"sqlite_with_rowid": False},
    )


class User(Record, Base):
    """A person who gets messages.

    Attributes:
        id: names the user in paths.
        roles: as they were given; "Dispatcher" in any case is alerted if no technician accepts a
            job.
        channels: where messages go: `text:<phone>`, `call:<phone>`, or a URL of apprise.
    """

    __tablename__ = "field_users"

    roles: Mapped[list[str]] = mapped_column(JSON)
    channels: Mapped[list[str]] = mapped_column(JSON)


class RoleHeld(Base):
    """A role of a user, derived from the user's record.

    Attributes:
        role: as `skill_key` writes one.
    """

    __tablename__ = "field_roles"

    role: Mapped[str] = mapped_column(_Word, primary_key=True)
    user_id: Mapped[str] = mapped_column(
        ID, ForeignKey("field_users.id", ondelete="CASCADE"), primary_key=True, index=True
    )

    __table_args__ = ({"sqlite_with_rowid": False},)


class Setting(Base):
    """Settings that are changed while the system runs.

    Attributes:
        value: a JSON object.
    """

    __tablename__ = "field_settings"

    name: Mapped[str] = mapped_column(String(MAX_ID), primary_key=True)
    value: Mapped[dict[str, Any]] = mapped_column(JSON)
    version: Mapped[int] = mapped_column(Integer)


class TextAnswer(Base):
    """An answer by text message, and the offer that it was about when it came first.

    Attributes:
        event: the message's, the same however often its webhook comes.
        offer: the reference of the offer; empty if the technician had none.
        at: when it came first, ms UTC.
    """

    __tablename__ = "field_text_answers"

    event: Mapped[str] = mapped_column(String(MAX_NAME), primary_key=True)
    offer: Mapped[str] = mapped_column(String(64))
    at: Mapped[int] = mapped_column(BigInteger, index=True)

    __table_args__ = ({"sqlite_with_rowid": False},)


TEXTS_KEPT_MS = 90 * 86_400_000
"""How long it is remembered which offer a text message answered."""
_ANSWERED = text(
    "INSERT INTO field_text_answers (event, offer, at) VALUES (:event, :offer, :at) "
    "ON CONFLICT (event) DO NOTHING"
)


async def offer_answered(session: AsyncSession, event: str, offer: str, at: int) -> str:
    """Return the offer that a message answers: the one when it came first, however often it comes.

    Args:
        offer: that the technician has now; empty for none.
        at: now, ms UTC.
    """
    await session.execute(delete(TextAnswer).where(TextAnswer.at <= at - TEXTS_KEPT_MS))
    await session.execute(_ANSWERED, {"event": event, "offer": offer, "at": at})
    found = await session.scalars(select(TextAnswer.offer).where(TextAnswer.event == event))
    return found.one()


def skill_key(skill: str) -> str:
    """Return a skill as it is compared: without its case and the space around it."""
    return " ".join(skill.casefold().split())


def held(skills: Iterable[str]) -> str:
    """Return skills as one text, in which each is found with what stands around it."""
    return "".join(f"\n{one}" for one in skills) + "\n"


def lacking(has: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """Return the skills that are wanted and not there.

    Args:
        has: of a technician, in any case.
        wanted: of a request, in any case.

    Returns:
        Those that lack, as they were wanted.
    """
    known = {skill_key(one) for one in has}
    return [one for one in wanted if skill_key(one) not in known]


def _word(text: str) -> str:
    key = skill_key(check_name("it", text))
    # Some letters become several without their case.
    if not 0 < len(key) <= 2 * MAX_SKILL:
        message = "it says nothing" if not key else "it is too long"
        raise InvalidValue(message)
    return text.strip()


Word = Annotated[str, Field(min_length=1, max_length=MAX_SKILL), AfterValidator(_word)]
"""A skill or a role: up to 64 characters."""


def _text_answers() -> None:
    cast("Table", TextAnswer.__table__).create(op.get_bind())


SCHEMAS = (
    Schema(name=NAME, metadata=Base.metadata, upgrades={"0002": _text_answers}),
    tally_schema("field_service_seen", "field_service_tally"),
)
"""The tables of this system, and of what is counted."""
