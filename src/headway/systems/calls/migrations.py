"""The tables of `calls` in the directory, and their upgrades."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headway.systems.calls.catalogue import Base
from headway.systems.calls.source_table.lead_table import LEADS
from headway.systems.calls.source_table.migration import MIGRATION
from headway.systems.calls.source_table.shadow import SHADOW
from headway.systems.directory.schemas import Schema, tally_schema


def _source_table() -> None:
    for table in (LEADS, SHADOW, MIGRATION):
        table.create(op.get_bind())


def _checks_at() -> None:
    # It is unknown when the checks of existing templates last changed.
    column = sa.Column("checks_at", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("calls_templates", column)


def _version() -> None:
    op.add_column(
        "calls_numbers", sa.Column("version", sa.Integer, nullable=False, server_default="1")
    )


SCHEMAS = (
    Schema(
        name="calls",
        metadata=Base.metadata,
        upgrades={"0002": _source_table, "0003": _checks_at, "0004": _version},
    ),
    tally_schema("calls_seen", "calls_tally"),
)
"""The tables of this system and of its tally."""
