"""A migration from an older system: what is chosen, and the tables that keep it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
)

from headway.core.errors import InvalidValue
from headway.runtime.timing import Timing
from headway.systems.calls.truth.lead_table import LeadTable
from headway.systems.calls.truth.settings import Chosen, MigrationSettings, Mode
from headway.systems.directory.database import Directory, naming

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What is chosen, and its author.

    Attributes:
        chosen: which rows, and how they are migrated.
        changed_at: when it was chosen at run time, ms UTC; None while the settings hold.
    """

    chosen: Chosen
    changed_at: int | None = None
    changed_by: str = "settings"


class Migration:
    """The migration of an older system's rows.

    Attributes:
        settings: the initial choice, until it is changed at run time.
        table: the older system's, which is the truth.
        directory: where the choice and the shadow's decisions are kept.
    """

    def __init__(
        self,
        settings: MigrationSettings,
        table: LeadTable,
        directory: Directory,
        timing: Timing,
    ) -> None:
        """Read nothing yet.

        Raises:
            InvalidValue: rows are to be moved, but the table does not say whose they are.
        """
        self.settings = settings
        self.table = table
        self.directory = directory
        self.timing = timing
        self._check(settings.chosen)

    async def choice(self) -> Choice:
        """What is chosen now.

        Raises:
            StoreUnavailable: the directory cannot be reached.
        """
        async with self.directory.read() as session:
            row = (await session.execute(select(MIGRATION))).mappings().first()
        if row is None:
            return Choice(chosen=self.settings.chosen)
        chosen = Chosen(
            mode=Mode(row["mode"]),
            percent=row["percent"],
            resellers=tuple(json.loads(row["resellers"])),
        )
        return Choice(chosen=chosen, changed_at=row["changed_at"], changed_by=row["changed_by"])

    async def choose(self, chosen: Chosen, author: str) -> Choice:
        """Choose otherwise; it holds for the next look, in every process, and after restarts.

        Raises:
            InvalidValue: the table does not say whose its rows are; nothing was written.
            StoreUnavailable: the directory cannot be reached; nothing was written.
        """
        self._check(chosen)
        at = self.timing.wall_at()
        values = {
            "id": 1,
            "mode": str(chosen.mode),
            "percent": chosen.percent,
            "resellers": json.dumps(chosen.resellers),
            "changed_at": at,
            "changed_by": author,
        }
        async with self.directory.change() as session:
            await session.execute(delete(MIGRATION))
            await session.execute(insert(MIGRATION).values(values))
        return Choice(chosen=chosen, changed_at=at, changed_by=author)

    def _check(self, chosen: Chosen) -> None:
        if chosen.mode is not Mode.OFF and not self.table.has_owners:
            message = f"the migration's mode is {chosen.mode}, but no column says whose a row is"
            raise InvalidValue(message, hint="name it in calls.table.columns.owner")
