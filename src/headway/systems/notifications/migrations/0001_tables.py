"""The first tables: recipients, message templates, dedupe keys, and what is counted."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _records(table: str, *columns: sa.Column[Any]) -> None:
    op.create_table(
        table,
        sa.Column(
            "id",
            sa.String(64).with_variant(sa.String(64, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("name", sa.String(200), nullable=False),
        *columns,
        sa.Column("version", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
    )


def upgrade() -> None:
    """Make them."""
    _records(
        "notify_recipients",
        sa.Column("tz", sa.String(64), nullable=False),
        sa.Column("preferences", sa.JSON, nullable=False),
        sa.Column("devices", sa.JSON, nullable=False),
        sa.Column("email", sa.String(320), nullable=True),
        sa.Column("phone", sa.String(16), nullable=True),
        sa.Column("webhook_url", sa.Text, nullable=True),
        sa.Column("apprise", sa.Text, nullable=True),
    )
    op.create_index("ix_notify_recipients_phone", "notify_recipients", ["phone"])
    _records("notify_templates", sa.Column("channels", sa.JSON, nullable=False))
    op.create_table(
        "notify_keys",
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("until_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_notify_keys"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_notify_keys_until_at", "notify_keys", ["until_at"])
    op.create_table(
        "notify_tally",
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("label", sa.String(64), nullable=False),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event", "label", name="pk_notify_tally"),
    )
