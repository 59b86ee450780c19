"""The tables of this system in the directory: numbers, templates, and their revision."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from headway.systems.calls.number import Number, NumberStatus
from headway.systems.directory.naming import naming


class Base(DeclarativeBase):
    """The tables of this system."""

    metadata = naming()


class NumberRecord(Base):
    """A row of `calls_numbers`; see `Number`."""

    __tablename__ = "calls_numbers"
    __table_args__ = (CheckConstraint("maximum_channels >= 1", name="channels"),)

    number: Mapped[str] = mapped_column(String(16), primary_key=True)
    provider: Mapped[str] = mapped_column(String(64))
    maximum_channels: Mapped[int]
    status: Mapped[str] = mapped_column(String(16))
    reseller: Mapped[str | None] = mapped_column(String(200), index=True)
    pool: Mapped[str | None] = mapped_column(String(64), index=True)

    def read(self) -> Number:
        """As the rest of the system takes it."""
        return Number(
            number=self.number,
            provider=self.provider,
            maximum_channels=self.maximum_channels,
            status=NumberStatus(self.status),
            reseller=self.reseller,
            pool=self.pool,
        )


class TemplateRecord(Base):
    """A row of `calls_templates`: a template as its body said it, and since when it checks so."""

    __tablename__ = "calls_templates"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    body: Mapped[dict[str, Any]] = mapped_column(JSON)
    checks_at: Mapped[int] = mapped_column(BigInteger, default=0)


class RevisionRecord(Base):
    """The one row of `calls_revision`: it grows with each change of the others.

    Who changes something begins here, so that changes, and what is told to the store of each,
    follow one another.
    """

    __tablename__ = "calls_revision"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    revision: Mapped[int]
