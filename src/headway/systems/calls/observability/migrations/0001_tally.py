"""How often things happened, by label."""

from __future__ import annotations

from headway.systems.directory.migrations import create_tally

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    create_tally("calls_tally")
