"""The system's tables: technicians, users, settings, and answers by text message.

No column says whether a technician is busy: a busy one's request holds the permit
`technician:<id>`.
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
from headway.systems.directory.records import ID, MAX_ID, RecordColumns
from headway.systems.directory.schemas import Schema, collated, naming, tally_schema
from headway.systems.field_service.request import NAME

MAX_SKILL = 64
"""Maximum characters of a skill or a role."""

_Word = collated(2 * MAX_SKILL)


class Channel(StrEnum):
    """How offers reach a technician."""

    VOICE = "voice"
    TEXT = "text"


def _words(words: type[Channel]) -> list[str]:
    return [str(one) for one in words]


class Base(DeclarativeBase):
    """The tables of this system."""

    metadata = naming()


class Technician(RecordColumns, Base):
    """A person who is offered jobs.

    Attributes:
        id: used as the candidate, and in names of gates.
        phone: E.164; unique.
        lat: degrees north, with seven decimals.
        lon: degrees east, from -180 to below 180, with seven decimals.
        on_duty: whether the technician gets offers.
        idle_since: since when without a job, ms UTC; at the same distance, the longer idle
            technician is asked first.
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


class TechnicianPosition(Base):
    """The position of a technician on duty: one row per skill, and one without a skill.

    The rows are derived from the technician for the search: those of a skill are adjacent, in the
    order of their cells.

    Attributes:
        skill: normalized by `skill_key`; empty for requests without a skill.
        cell: the position, numbered by `cells.cell_of`.
        skills: all skills of the technician, joined by `join_skills`; empty if `skill` is.
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


class User(RecordColumns, Base):
    """A person who gets messages.

    Attributes:
        id: used in paths.
        roles: as entered; a "Dispatcher", in any case, is alerted if no technician accepts a job.
        channels: where messages go: `text:<phone>`, `call:<phone>`, or a URL of apprise.
    """

    __tablename__ = "field_users"

    roles: Mapped[list[str]] = mapped_column(JSON)
    channels: Mapped[list[str]] = mapped_column(JSON)


class RoleHeld(Base):
    """A role of a user, derived from the user's record.

    Attributes:
        role: normalized by `skill_key`.
    """

    __tablename__ = "field_roles"

    role: Mapped[str] = mapped_column(_Word, primary_key=True)
    user_id: Mapped[str] = mapped_column(
        ID, ForeignKey("field_users.id", ondelete="CASCADE"), primary_key=True, index=True
    )

    __table_args__ = ({"sqlite_with_rowid": False},)


class Setting(Base):
    """Settings changed while the system runs.

    Attributes:
        value: a JSON object.
    """

    __tablename__ = "field_settings"

    name: Mapped[str] = mapped_column(String(MAX_ID), primary_key=True)
    value: Mapped[dict[str, Any]] = mapped_column(JSON)
    version: Mapped[int] = mapped_column(Integer)


class TextAnswer(Base):
    """An answer by text message, and the offer that it was about when it first arrived.

    Attributes:
        event: id of the message, the same for each repeat of its webhook.
        offer: reference of the offer; empty if the technician had none.
        at: when it first arrived, ms UTC.
    """

    __tablename__ = "field_text_answers"

    event: Mapped[str] = mapped_column(String(MAX_NAME), primary_key=True)
    offer: Mapped[str] = mapped_column(String(64))
    at: Mapped[int] = mapped_column(BigInteger, index=True)

    __table_args__ = ({"sqlite_with_rowid": False},)


TEXTS_KEPT_MS = 90 * 86_400_000
"""How long the offer that a text message answered is kept."""
_ANSWERED = text(
    "INSERT INTO field_text_answers (event, offer, at) VALUES (:event, :offer, :at) "
    "ON CONFLICT (event) DO NOTHING"
)


async def record_answered_offer(session: AsyncSession, event: str, offer: str, at: int) -> str:
    """Record which offer a message answers, and return it.

    For a repeat, it is the offer of the first arrival. Records past their retention are deleted.

    Args:
        offer: offer that the technician has now; empty for none.
        at: current time, ms UTC.
    """
    await session.execute(delete(TextAnswer).where(TextAnswer.at <= at - TEXTS_KEPT_MS))
    await session.execute(_ANSWERED, {"event": event, "offer": offer, "at": at})
    found = await session.scalars(select(TextAnswer.offer).where(TextAnswer.event == event))
    return found.one()


def skill_key(skill: str) -> str:
    """Normalize a skill for comparison: case-folded, with single spaces."""
    return " ".join(skill.casefold().split())


def join_skills(skills: Iterable[str]) -> str:
    """Join skills into one text, in which `join_skills` of one skill is a substring."""
    return "".join(f"\n{one}" for one in skills) + "\n"


def missing_skills(has: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """Return the wanted skills that a technician lacks, unchanged; compares without case."""
    known = {skill_key(one) for one in has}
    return [one for one in wanted if skill_key(one) not in known]


def _word(text: str) -> str:
    key = skill_key(check_name("it", text))
    # Case-folding turns some letters into several.
    if not 0 < len(key) <= 2 * MAX_SKILL:
        message = "it is empty" if not key else "it is too long"
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
"""The tables of this system and of its counters."""
