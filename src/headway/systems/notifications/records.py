"""What the system keeps besides jobs: recipients, message templates, and keys of duplicates."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, LargeBinary, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from headway.systems.directory.naming import naming
from headway.systems.directory.records import Record

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
    """The first notification with a dedupe key, and until when it holds it; see `dedupe`."""

    __tablename__ = "notify_keys"

    digest: Mapped[bytes] = mapped_column(LargeBinary(DIGEST_BYTES), primary_key=True)
    id: Mapped[str] = mapped_column(String(36))
    until_at: Mapped[int] = mapped_column(BigInteger, index=True)

    __table_args__ = ({"sqlite_with_rowid": False},)
