"""The tables of leads as truth, of shadow decisions, and of what is chosen of a migration."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "calls_leads",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("phone", sa.String(32), nullable=False),
        sa.Column("tz", sa.String(64), nullable=False),
        sa.Column("reseller", sa.String(512), nullable=False),
        sa.Column("template", sa.String(512), nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("key", sa.String(512)),
        sa.Column("payload", sa.Text),
        sa.Column("reporting_webhook_url", sa.Text),
        sa.Column("ref", sa.String(64)),
        sa.Column("number", sa.String(32)),
        sa.Column("since", sa.BigInteger),
        sa.Column("outcome", sa.String(64)),
        sa.Column("finished_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_calls_leads"),
    )
    op.create_index("uq_calls_leads_reseller_key", "calls_leads", ["reseller", "key"], unique=True)
    op.create_index("ix_calls_leads_status_id", "calls_leads", ["status", "id"])
    op.create_table(
        "calls_shadow",
        sa.Column("row_id", sa.String(512), nullable=False),
        sa.Column("reseller", sa.String(512), nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("decided_at", sa.BigInteger, nullable=False),
        sa.Column("number", sa.String(32)),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("theirs_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("row_id", name="pk_calls_shadow"),
    )
    op.create_index("ix_calls_shadow_decided_at", "calls_shadow", ["decided_at", "row_id"])
    op.create_index("ix_calls_shadow_theirs_at", "calls_shadow", ["theirs_at", "decided_at"])
    op.create_table(
        "calls_migration",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("percent", sa.Float, nullable=False),
        sa.Column("resellers", sa.Text, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("changed_by", sa.String(512), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calls_migration"),
    )
