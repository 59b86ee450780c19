"""The source table: leads are its rows, and jobs follow them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5

from fastapi import APIRouter
from sqlalchemy import and_, or_
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from uuid_utils import uuid7

from headway.contract.store import Store
from headway.contract.views import JobQuery
from headway.core.errors import CallerError, InvalidValue, KeyConflict, StoreError
from headway.core.job import MAX_BATCH, NewJob
from headway.core.state import FINAL, State
from headway.runtime.app import App
from headway.runtime.handler_results import Dead
from headway.runtime.kind import Kind
from headway.runtime.timing import Timing
from headway.systems.calls.source_table.lead_table import PAGE, LeadTable, insert_into
from headway.systems.calls.source_table.migration import Migration
from headway.systems.calls.source_table.migration_routes import migration_routes
from headway.systems.calls.source_table.row_sync import (
    NOT_OURS,
    RowMigration,
    RowSync,
    declare_row_migration,
    declare_source,
    is_elsewhere,
)
from headway.systems.calls.source_table.settings import LeadRow, Recipe, lead_of
from headway.systems.calls.source_table.shadow import ShadowDecisions, declare_shadow


class WrittenLead(NamedTuple):
    """The result of writing one lead.

    Attributes:
        row: the row as it is in the table now.
        created: whether this call wrote it.
    """

    row: LeadRow
    created: bool


async def write_leads(table: LeadTable, rows: Sequence[LeadRow]) -> list[WrittenLead]:
    """Write leads, all or none; when this returns, they are committed.

    Args:
        rows: new leads; a lead without an id gets one.

    Returns:
        The result for each lead, in this order. For a known key it is the row that has that key.

    Raises:
        KeyConflict: a key names a row with another body; nothing was written.
        InvalidValue: the table cannot store a lead; nothing was written.
        StoreUnavailable: the table cannot be reached; nothing was written, unless the connection
            broke during the commit.
    """
    for row in rows:
        _check_kept(table, row)
    named = [_named(table, row) for row in rows]
    async with table.database.change() as session:
        try:
            if table.columns.makes_ids:
                return [await _write_one(table, session, row) for row in named]
            return await _write_all(table, session, named)
        except (DataError, IntegrityError) as error:
            message = f"{table.settings.place} rejected the lead"
            raise InvalidValue(message, hint=str(error.orig)[:200]) from error


def _check_kept(table: LeadTable, row: LeadRow) -> None:
    """Validate that the table can store all fields of a lead.

    Raises:
        InvalidValue: a lead rebuilt from its row would differ.
    """
    defaults: dict[str, object] = {"payload": None, "reporting_webhook_url": None}
    for field, default in {**defaults, **table.settings.defaults}.items():
        value = getattr(row, field)
        if field not in table.columns and value != default:
            message = (
                f"the lead has {field} = {value!r:.40}, but {table.settings.place} has no column "
                "for it"
            )
            raise InvalidValue(message, hint=f"set calls.table.columns.{field}")


def _named(table: LeadTable, row: LeadRow) -> LeadRow:
    if row.key is not None and "key" not in table.columns:
        if table.columns.makes_ids:
            message = f"{table.settings.place} has no column for keys"
            raise InvalidValue(message, hint="set calls.table.columns.key")
        # Without a key column, the id is derived from the key, so that a repeat finds the row.
        return row.named(str(uuid5(NAMESPACE_URL, f"{row.reseller}\x1f{row.key}")))
    return row if row.id or table.columns.makes_ids else row.named(str(uuid7()))


async def _write_one(table: LeadTable, session: AsyncSession, row: LeadRow) -> WrittenLead:
    """Write one row, for a table that generates its rows' ids."""
    statement = insert_into(session, table.columns.table).values(table.values_of(row))
    made = (
        await session.execute(statement.on_conflict_do_nothing().returning(table.columns["id"]))
    ).scalar_one_or_none()
    if made is not None:
        return WrittenLead(row.named(str(made)), created=True)
    return await _known(table, session, row)


async def _write_all(
    table: LeadTable, session: AsyncSession, rows: Sequence[LeadRow]
) -> list[WrittenLead]:
    key = table.columns["id"]
    created: set[str] = set()
    for begin in range(0, len(rows), PAGE):
        values = [table.values_of(row) for row in rows[begin : begin + PAGE]]
        statement = insert_into(session, table.columns.table).values(values)
        found = await session.execute(statement.on_conflict_do_nothing().returning(key))
        created |= {str(one) for one in found.scalars()}
    replies: list[WrittenLead] = []
    for row in rows:
        if row.id in created:
            created.discard(row.id)
            replies.append(WrittenLead(row, created=True))
        else:
            replies.append(await _known(table, session, row))
    return replies


async def _known(table: LeadTable, session: AsyncSession, row: LeadRow) -> WrittenLead:
    which = [table.among([row.id])] if row.id else []
    if row.key is not None and "key" in table.columns:
        by_key = [table.columns["key"] == row.key]
        if "reseller" in table.columns:
            by_key.append(table.columns["reseller"] == row.reseller)
        which.append(and_(*by_key))
    found = await table.found(session, or_(*which))
    if not found:
        message = f"{table.settings.place} has another row that conflicts with this lead"
        raise InvalidValue(message, hint="check the unique indexes on its other columns")
    known = next(iter(found.values())).row
    if not row.same_as(known):
        message = f"the key {row.key!r} names the lead {known.lead}, which has a different body"
        raise KeyConflict(
            message, hint="phone, tz, template, payload and reporting_webhook_url must be the same"
        )
    return WrittenLead(known, created=False)


AT_ONCE_S = 1.0
"""How long intake tries to create jobs after their rows are committed, in seconds."""

_log = logging.getLogger("headway.calls")


class SourceTable:
    """Keeps the jobs of leads and the rows of the source table in step.

    Attributes:
        routers: routes of the migration.
    """

    def __init__(self, table: LeadTable, migration: Migration, timing: Timing) -> None:
        self.table = table
        self.migration = migration
        self._decisions = ShadowDecisions(migration.directory)
        self.routers: tuple[APIRouter, ...] = (migration_routes(migration, self._decisions),)
        self._timing = timing
        self._app: App | None = None

    def declare(self, app: App, lead: Kind, recipe: Recipe) -> None:
        """Declare the source table, and if its rows have owners, the migration and the shadow."""
        self._app = app
        sync = RowSync(lambda: app.store, self.table, recipe)
        if self.table.has_owners:
            # First, so that the worker's same look sees rows that have just become ours.
            row_migration = RowMigration(self.table, self.migration, sync)
            declare_row_migration(app, row_migration, self.migration)
            declare_shadow(app, recipe, self.table, self.migration, self._decisions)
        declare_source(app, lead, recipe, self.table, sync)

    async def follow(self, store: Store, jobs: Sequence[NewJob]) -> bool:
        """Create the jobs of rows just written, if the store accepts them within a second.

        The rows are committed, so a store that refuses their jobs, such as one with a full lane,
        does not refuse the leads.

        Returns:
            Whether they were created; if not, the source creates them later.
        """
        try:
            async with self._timing.limit(AT_ONCE_S):
                for begin in range(0, len(jobs), MAX_BATCH):
                    await store.enqueue(jobs[begin : begin + MAX_BATCH])
        except (StoreError, CallerError, TimeoutError) as error:
            # A lost store has no gates until it is rebuilt.
            _log.warning(
                "lead jobs postponed: leads=%d error=%s", len(jobs), str(error) or "timeout"
            )
            return False
        return True

    async def before_dial(self, row_id: str, *, ref: str, number: str) -> None:
        """Mark a lead's row as running, before the provider gets the first request of the call.

        Raises:
            Dead: the row does not exist, is not ours, is another lead's or is not pending; do not
                dial.
            StoreUnavailable: the table cannot be reached; do not dial.
            StoreError: the store cannot be read; do not dial.
        """
        if ref.partition(":")[0] != lead_of(row_id):
            # Callers who can create jobs of any kind can pass them any row.
            message = f"{NOT_OURS}: the row {row_id} has another lead"
            raise Dead(message)
        at = self._timing.wall_at()
        if await self.table.mark_running(row_id, ref=ref, number=number, at=at):
            return
        state = (await self.table.find([row_id])).get(row_id)
        if (
            state is not None
            and state.ref is not None
            and await self._is_over(state.ref, ref)
            and await self.table.mark_running_again(
                row_id, before=state.ref, ref=ref, number=number, at=at
            )
        ):
            return
        if state is None:
            message = f"{NOT_OURS}: the row {row_id} no longer exists"
            raise Dead(message)
        whose = "" if state.ours else " and belongs to the older system"
        message = f"{NOT_OURS}: the row {row_id} is {state.status}{whose}"
        raise Dead(message)

    async def put_back(self, row_id: str, *, ref: str) -> bool:
        """Make a lead's row pending again after a call that will be repeated.

        Returns:
            Whether the row was running under this reference, and is pending now.
        """
        return await self.table.put_back(row_id, ref=ref)

    async def finished(
        self, row_id: str, lead: str, outcome: str, state: State, reason: str
    ) -> bool:
        """Write the outcome of a lead to its row; a repetition changes nothing.

        Args:
            lead: id of the lead, which another lead's row does not have.

        Returns:
            Whether the row was changed.
        """
        if lead != lead_of(row_id):
            return False
        if state is not State.SUCCEEDED and await self._is_elsewhere(row_id, reason):
            # Another system has the row, or the job was retried: this is not the lead's end.
            return False
        return await self.table.mark_done(row_id, outcome=outcome, at=self._timing.wall_at())

    async def _is_elsewhere(self, row_id: str, reason: str) -> bool:
        if self._app is None or reason.startswith(NOT_OURS):
            return True
        view = await self._app.store.read(JobQuery(id=lead_of(row_id)))
        return view is not None and (view.state not in FINAL or is_elsewhere(view))

    async def _is_over(self, written_ref: str, ref: str) -> bool:
        """Return whether the reference in a row is that of an earlier, ended run of this job.

        If it is, the write that should have followed the end of that run was lost.
        """
        if self._app is None:
            return False
        job_id, _, run = ref.partition(":")
        view = await self._app.store.read(JobQuery(id=job_id))
        if view is None:
            return False
        return any(
            one.ended_at is not None and str(one.run) != run
            for one in view.runs
            if written_ref in (f"{job_id}:{one.run}", *one.keys)
        )
