"""Numbers, templates, and their revision."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "calls_numbers",
        sa.Column("number", sa.String(16), nullable=False),
        sa.Column("provider", sa.String(64), nullable=False),
        sa.Column("maximum_channels", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reseller", sa.String(200)),
        sa.Column("pool", sa.String(64)),
        sa.PrimaryKeyConstraint("number", name="pk_calls_numbers"),
        sa.CheckConstraint("maximum_channels >= 1", name="ck_calls_numbers_channels"),
    )
    op.create_index("ix_calls_numbers_reseller", "calls_numbers", ["reseller"])
    op.create_index("ix_calls_numbers_pool", "calls_numbers", ["pool"])
    op.create_table(
        "calls_templates",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_calls_templates"),
    )
    revision_table = op.create_table(
        "calls_revision",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calls_revision"),
    )
    op.bulk_insert(revision_table, [{"id": 1, "revision": 0}])
