"""What the system keeps besides jobs: technicians, users, and settings that change while it runs.

That a technician is busy is no column: it is the permit `technician:<id>`, which a job holds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, Enum, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from headway.systems.directory.naming import naming
from headway.systems.directory.records import ID, MAX_ID, Record

MAX_SKILL = 64
"""Characters of a skill or a role."""

_Word = String(2 * MAX_SKILL).with_variant(String(2 * MAX_SKILL, collation="C"), "postgresql")


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
    """Where a technician on duty is, once for each of his skills and once for none.

    It follows from the technician, and is what is searched: those with a skill lie together, in
    the order of their cells.

    Attributes:
        skill: as `skill_key` writes it; empty for requests without a skill.
        cell: the position, as `nearby.cells` numbers it.
        skills: all that he has, as `held` writes them; empty where the skill is.
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
