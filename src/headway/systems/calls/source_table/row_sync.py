"""Create jobs from the rows of the source table, and move rows to and from an older system.

A row changes its owner by one conditional update. The row alone decides whose it is, so at no time
do both systems or neither have it. Jobs only follow: the next look creates a missing job, and a
surplus one ends before it dials.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from headway.contract.operate import Edit, Verb
from headway.contract.store import InFlight, Store
from headway.contract.views import JobsQuery, JobView
from headway.core.errors import CallerError, UnknownRecord
from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob
from headway.core.state import FINAL, QUEUED, State
from headway.runtime.app import App
from headway.runtime.kind import Kind
from headway.runtime.sources import in_flight
from headway.systems.calls.lead import DIAL
from headway.systems.calls.source_table.lead_table import LeadTable
from headway.systems.calls.source_table.migration import Migration
from headway.systems.calls.source_table.settings import (
    LeadRow,
    MigrationMode,
    MigrationPlan,
    Recipe,
    RowState,
)
from headway.systems.calls.template import DEFAULT
from headway.systems.jobs import act

NOT_OURS = "NOT_OURS"
"""Starts the reason of a job whose row was not ours and pending just before the call."""
RELEASED = "RELEASED"
"""Starts the reason of a job whose row was returned to the older system before the call."""
AUTHOR = "[calls.migration]"
"""The author of these changes on the trail."""


def is_elsewhere(view: JobView) -> bool:
    """Return whether a job ended because another system had its row."""
    ended = view.state in {State.DEAD, State.CANCELLED}
    return ended and view.reason.startswith((NOT_OURS, RELEASED))


_log = logging.getLogger("headway.calls")


class RowSync:
    """Keeps jobs in line with their rows.

    Args:
        store: returns the store, which must be open.
    """

    def __init__(self, store: Callable[[], Store], table: LeadTable, recipe: Recipe) -> None:
        self._store = store
        self._table = table
        self._recipe = recipe
        self._logged: set[str] = set()

    def job(self, row: LeadRow) -> NewJob | None:
        """Return the job of a row; None if the row is not a valid lead, which is logged once."""
        try:
            return self._recipe.job(row)
        except CallerError as error:
            if row.id not in self._logged:
                _log.error("row is not a valid lead: id=%s error=%s", row.id, error)
                self._logged.add(row.id)
            return None

    async def missing(self, rows: Sequence[LeadRow]) -> list[NewJob]:
        """Return the jobs that the store lacks for pending rows of ours.

        A job that ended because another system had its row is retried. A queued job made from an
        earlier version of its row is edited.

        Args:
            rows: at most 1000.
        """
        jobs = {job.id: job for job in map(self.job, rows) if job is not None}
        if not jobs:
            return []
        query = JobsQuery(ids=tuple(jobs), limit=len(jobs))
        known = {view.id: view for view in (await self._store().read(query)).rows}
        differing = [
            view
            for view in known.values()
            if self._is_its_lead(view, jobs[view.id]) and _differs(view, jobs[view.id])
        ]
        if differing:
            await self._bring_in_line(differing, rows)
        return [job for job in jobs.values() if job.id not in known]

    async def make(self, rows: Sequence[LeadRow]) -> None:
        """Create the jobs of rows that have become ours.

        Raises:
            StoreError: the store is unavailable; the source creates them later.
        """
        missing = await self.missing(rows)
        if missing:
            await self._store().enqueue(missing)

    async def cancel(self, rows: Sequence[LeadRow]) -> None:
        """Cancel the queued jobs of rows that are no longer ours.

        A job that is about to call finds out from its row.

        Raises:
            StoreError: the store is unavailable; each job then finds out from its row.
        """
        ids = (row.lead for row in rows)
        reason = f"{RELEASED}: the row was returned to the older system"
        await act(self._store(), Verb.CANCEL, *ids, author=AUTHOR, reason=reason, states=QUEUED)

    async def _cancel_returned(self, rows: Sequence[LeadRow]) -> None:
        now = await self._table.find([row.id for row in rows])
        returned = [row for row in rows if row.id in now and not now[row.id].ours]
        if returned:
            await self.cancel(returned)

    def _is_its_lead(self, view: JobView, job: NewJob) -> bool:
        """Return whether a job with the id of a row's lead is this lead; if not, log it once.

        Ids of rows that are no UUIDs can be guessed, and callers of other lanes choose the ids of
        their jobs: theirs must not get the arguments of the lead.
        """
        if (view.kind, view.lane) == (job.kind, job.lane):
            return True
        if view.id not in self._logged:
            _log.error("row has no lead: another job has its id: id=%s lane=%s", view.id, view.lane)
            self._logged.add(view.id)
        return False

    async def _bring_in_line(self, views: Sequence[JobView], rows: Sequence[LeadRow]) -> None:
        """Retry or edit jobs to match their rows.

        The rows are read again, after their jobs: otherwise a row that has changed since would undo
        what another process made of it. If the job changes after that, this is refused.
        """
        of_lead = {row.lead: row.id for row in rows}
        now = await self._table.find_pending([of_lead[view.id] for view in views])
        retried: list[LeadRow] = []
        for view in views:
            row = now.get(of_lead[view.id])
            job = None if row is None else self.job(row)
            if row is None or job is None or not _differs(view, job):
                continue
            edit = Edit(
                args=job.args,
                stage=job.stage,
                gates=job.gates,
                if_run=view.run,
                if_args=view.args,
            )
            verb, reason = Verb.EDIT, "the row was changed"
            if view.state in FINAL:
                edit = replace(edit, due_at=job.due_at)
                verb, reason = Verb.RETRY, "the row is ours again"
                retried.append(row)
            await act(self._store(), verb, view.id, author=AUTHOR, reason=reason, edit=edit)
        if retried:
            # A row may have been returned since, and its job cancelled before it was retried.
            await self._cancel_returned(retried)


def _differs(view: JobView, job: NewJob) -> bool:
    """Return whether the job of a pending row of ours ended elsewhere, or is of an earlier row."""
    if view.state in FINAL:
        return is_elsewhere(view)
    return view.state in QUEUED and view.args != job.args


TABLE = "calls.table"


def declare_source(app: App, lead: Kind, recipe: Recipe, table: LeadTable, sync: RowSync) -> None:
    """Declare the source table as a source of an app."""

    @app.source(name=TABLE, every=table.settings.every, rate=table.settings.rate)
    async def pending() -> AsyncGenerator[NewJob]:
        async for page in table.pending(ours=True):
            for job in await sync.missing(page):
                yield job

    @pending.in_flight
    async def calls() -> AsyncGenerator[InFlight]:
        async for page in table.running():
            for state in page:
                try:
                    yield await _in_flight(lead, recipe, state)
                except CallerError as error:
                    _log.error("row is not a valid lead: id=%s error=%s", state.row.id, error)


async def _in_flight(lead: Kind, recipe: Recipe, state: RowState) -> InFlight:
    made = recipe.job(state.row)
    try:
        specs = await recipe.dial_gates(state.row)
    except UnknownRecord:
        # The template was removed during the call, which must still be awaited.
        specs = await recipe.dial_gates(replace(state.row, template=DEFAULT))
    gates = lead.uses(DIAL, made.lane, made.tenant, made.args, specs)
    members = _members(specs, state.number)
    if not members:
        _log.warning("calling number is in no pool: key=%s number=%s", made.key, state.number)
    return in_flight(
        made.changed(stage=DIAL, gates=gates, due_at=None),
        known_as=state.ref or f"{made.id}:1",
        since=datetime.fromtimestamp((state.since_at or 0) / 1000, UTC),
        timeout=f"{recipe.deadline_ms}ms",
        members=members,
    )


def _members(specs: Sequence[GateSpec], number: str | None) -> dict[str, str]:
    pools = [one for one in specs if one.members]
    return {
        pool.name: number for pool in pools if number is not None and number in dict(pool.members)
    }


ADOPTING = "calls.migration"


class RowMigration:
    """Moves rows between the older system and Headway."""

    def __init__(self, table: LeadTable, migration: Migration, sync: RowSync) -> None:
        self._table = table
        self._migration = migration
        self._sync = sync

    async def step(self) -> None:
        """Move the pending rows whose owner differs from the current plan.

        Raises:
            StoreError: the table or the store cannot be reached; each row has one owner.
        """
        plan = (await self._migration.current_plan()).plan
        if plan.mode in {MigrationMode.ADOPT, MigrationMode.RELEASE}:
            await self._give_back(plan)
        if plan.mode is MigrationMode.ADOPT:
            await self._take_over(plan)

    async def _give_back(self, plan: MigrationPlan) -> None:
        async for page in self._table.pending(ours=True):
            for some in self._batches([row for row in page if not plan.has(row)]):
                gone = await self._table.set_owner(some, ours=False)
                if gone:
                    _log.info("rows returned to the older system: rows=%d", len(gone))
                    await self._sync.cancel(gone)

    async def _take_over(self, plan: MigrationPlan) -> None:
        async for page in self._table.pending(ours=False):
            # A row that is not a valid lead stays with the older system.
            wanted = [row for row in page if plan.has(row) and self._sync.job(row) is not None]
            for some in self._batches(wanted):
                taken = await self._table.set_owner(some, ours=True)
                if taken:
                    _log.info("rows taken from the older system: rows=%d", len(taken))
                    await self._sync.make(taken)

    def _batches(self, rows: list[LeadRow]) -> list[list[str]]:
        size = self._migration.settings.batch
        ids = [row.id for row in rows]
        return [ids[begin : begin + size] for begin in range(0, len(ids), size)]


def declare_row_migration(app: App, row_migration: RowMigration, migration: Migration) -> None:
    """Declare a source whose looks move rows."""

    @app.source(name=ADOPTING, every=migration.settings.every)
    async def rows() -> AsyncGenerator[NewJob]:
        await row_migration.step()
        # The source yields nothing: jobs are created as their rows become ours.
        for job in ():
            yield job
