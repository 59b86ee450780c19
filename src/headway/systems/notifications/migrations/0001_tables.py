"""The first tables: recipients, message templates, dedupe keys, and what is counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headway.systems.directory.migrations import create_records, create_tally

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    create_records(
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
    create_records("notify_templates", sa.Column("channels", sa.JSON, nullable=False))
    op.create_table(
        "notify_keys",
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("until_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_notify_keys"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_notify_keys_until_at", "notify_keys", ["until_at"])
    create_tally("notify_tally")
