"""Headway's own tables in the directory that have to do with rows of leads."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, String, Table, Text

from headway.systems.directory.naming import naming

METADATA = naming()

LEADS = Table(
    "calls_leads",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("phone", String(32), nullable=False),
    Column("tz", String(64), nullable=False),
    Column("reseller", String(512), nullable=False),
    Column("template", String(512), nullable=False, default=""),
    Column("due_at", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("key", String(512)),
    Column("payload", Text),
    Column("reporting_webhook_url", Text),
    Column("ref", String(64)),
    Column("number", String(32)),
    Column("since", BigInteger),
    Column("outcome", String(64)),
    Column("finished_at", BigInteger),
    Index("uq_calls_leads_reseller_key", "reseller", "key", unique=True),
    Index("ix_calls_leads_status_id", "status", "id"),
)
"""Leads, where Headway's own table is the truth."""

SHADOW = Table(
    "calls_shadow",
    METADATA,
    Column("row_id", String(512), primary_key=True),
    Column("reseller", String(512), nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Column("number", String(32)),
    Column("why", Text, nullable=False),
    Column("theirs_at", BigInteger),
    Index("ix_calls_shadow_decided_at", "decided_at", "row_id"),
    Index("ix_calls_shadow_theirs_at", "theirs_at", "decided_at"),
)
"""What would have been called, when, and why then; beside it when the older system called."""

MIGRATION = Table(
    "calls_migration",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("mode", String(16), nullable=False),
    Column("percent", Float, nullable=False),
    Column("resellers", Text, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("changed_by", String(512), nullable=False),
)
"""What was chosen at run time: one row, or none."""
