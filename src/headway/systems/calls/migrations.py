"""Migrations of the tables of `calls`, and of what is counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headway.systems.directory.database import Schema, tally_schema


def _numbers_and_templates() -> None:
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


def _source_table() -> None:
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


def _checks_at() -> None:
    # Of existing templates it is not known since when they check so.
    column = sa.Column("checks_at", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("calls_templates", column)


SCHEMAS = (
    Schema(
        name="calls",
        revisions={"0001": _numbers_and_templates, "0002": _source_table, "0003": _checks_at},
    ),
    tally_schema("calls_seen", "calls_tally"),
)
"""The tables of this system, and of what is counted."""
