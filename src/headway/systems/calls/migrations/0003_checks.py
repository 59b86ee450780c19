"""Since when a template's checks are what they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; for existing templates the value is unknown."""
    column = sa.Column("checks_at", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("calls_templates", column)
