"""What is remembered of alerts, and who may write it: one row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "alerts_told",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("value", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_alerts_told"),
    )
