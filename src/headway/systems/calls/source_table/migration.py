"""How rows of an older system are migrated now: the plan, stored in the directory."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Float, Integer, String, Table, Text, select

from headway.core.errors import InvalidValue
from headway.runtime.timing import Timing
from headway.systems.calls.catalogue import Base
from headway.systems.calls.source_table.lead_table import LeadTable, insert_into
from headway.systems.calls.source_table.settings import (
    MigrationMode,
    MigrationPlan,
    MigrationSettings,
)
from headway.systems.directory.database import Directory

MIGRATION = Table(
    "calls_migration",
    Base.metadata,
    Column("id", Integer, primary_key=True),
    Column("mode", String(16), nullable=False),
    Column("percent", Float, nullable=False),
    Column("resellers", Text, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("changed_by", String(512), nullable=False),
)
"""The plan set at run time: one row, or none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurrentPlan:
    """How rows are migrated now, and who set it.

    Attributes:
        changed_at: when it was set at run time, ms UTC; None while the settings apply.
    """

    plan: MigrationPlan
    changed_at: int | None = None
    changed_by: str = "settings"


class Migration:
    """The migration of an older system's rows.

    Attributes:
        settings: initial plan, until it is changed at run time.
        table: source table, which the older system works on too.
        directory: database of the plan and the shadow's decisions.
    """

    def __init__(
        self,
        settings: MigrationSettings,
        table: LeadTable,
        directory: Directory,
        timing: Timing,
    ) -> None:
        """Create it without reading anything.

        Raises:
            InvalidValue: rows are to be migrated, but the table has no owner column.
        """
        self.settings = settings
        self.table = table
        self.directory = directory
        self.timing = timing
        self._check(settings.plan)

    async def current_plan(self) -> CurrentPlan:
        """Return the current plan."""
        async with self.directory.read() as session:
            row = (await session.execute(select(MIGRATION))).mappings().first()
        if row is None:
            return CurrentPlan(plan=self.settings.plan)
        plan = MigrationPlan(
            mode=MigrationMode(row["mode"]),
            percent=row["percent"],
            resellers=tuple(json.loads(row["resellers"])),
        )
        return CurrentPlan(plan=plan, changed_at=row["changed_at"], changed_by=row["changed_by"])

    async def set_plan(self, plan: MigrationPlan, author: str) -> CurrentPlan:
        """Store a new plan, which applies from each process's next look on, also after restarts.

        Raises:
            InvalidValue: the table has no owner column; nothing was written.
            StoreUnavailable: the directory cannot be reached; nothing was written.
        """
        self._check(plan)
        at = self.timing.wall_at()
        values = {
            "id": 1,
            "mode": str(plan.mode),
            "percent": plan.percent,
            "resellers": json.dumps(plan.resellers),
            "changed_at": at,
            "changed_by": author,
        }
        async with self.directory.change() as session:
            # In one statement, because two operators may set a plan at once.
            insert = insert_into(session, MIGRATION).values(values)
            await session.execute(insert.on_conflict_do_update(index_elements=["id"], set_=values))
        return CurrentPlan(plan=plan, changed_at=at, changed_by=author)

    def _check(self, plan: MigrationPlan) -> None:
        if plan.mode is not MigrationMode.OFF and not self.table.has_owners:
            message = f"the migration's mode is {plan.mode}, but the table has no owner column"
            raise InvalidValue(message, hint="set calls.table.columns.owner")
