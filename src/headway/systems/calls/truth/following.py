"""Following: the jobs of rows that are ours and wait, brought in line with these rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import uuid4

from headway.contract.operate import ActRequest, Edit, Verb
from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView
from headway.core.errors import CallerError
from headway.core.job import NewJob
from headway.core.state import FINAL, QUEUED
from headway.systems.calls.truth.recipe import Recipe
from headway.systems.calls.truth.refusals import AUTHOR, RELEASED, is_elsewhere
from headway.systems.calls.truth.row import LeadRow

_log = logging.getLogger("headway.calls")


class Following:
    """Brings jobs in line with the rows that they come from.

    Args:
        store: the store, as long as it is open.
        recipe: how a row becomes a job.
    """

    def __init__(self, store: Callable[[], Store], recipe: Recipe) -> None:
        self._store = store
        self._recipe = recipe
        self._told: set[str] = set()

    def job(self, row: LeadRow) -> NewJob | None:
        """The job of a row; None if it is no lead, which is logged once."""
        try:
            return self._recipe.job(row)
        except CallerError as error:
            if row.id not in self._told:
                _log.error("the row %s is no lead, and is left alone: %s", row.id, error)
                self._told.add(row.id)
            return None

    async def missing(self, rows: Sequence[LeadRow]) -> list[NewJob]:
        """The jobs of pending rows of ours that the store has not.

        A job that ended because its row was somebody else's begins a new life; one that waits and
        is of an older state of its row is changed.

        Args:
            rows: at most 1000.

        Raises:
            StoreError: the store cannot do it now.
        """
        jobs = {job.id: job for job in map(self.job, rows) if job is not None}
        if not jobs:
            return []
        query = JobsQuery(ids=tuple(jobs), runs=True, trail=True, limit=len(jobs))
        known = {view.id: view for view in (await self._store().read(query)).rows}
        for view in known.values():
            await self._bring_in_line(view, jobs[view.id])
        return [job for job in jobs.values() if job.id not in known]

    async def make(self, rows: Sequence[LeadRow]) -> None:
        """Makes the jobs of rows that have become ours.

        Raises:
            StoreError: the store cannot do it now; the source makes them later.
        """
        missing = await self.missing(rows)
        if missing:
            await self._store().enqueue(missing)

    async def call_off(self, rows: Sequence[LeadRow]) -> None:
        """Cancels the jobs of rows that are not ours any more, as far as they only wait.

        One that is about to call finds out from its row.

        Raises:
            StoreError: the store cannot do it now; each then finds out from its row.
        """
        ids = tuple(row.lead for row in rows)
        found = (await self._store().read(JobsQuery(ids=ids, limit=len(ids)))).rows
        queued = tuple(view.id for view in found if view.state in QUEUED)
        if queued:
            reason = f"{RELEASED}: the row is the older system's again"
            await self._act(queued, Verb.CANCEL, Edit(), reason)

    async def _bring_in_line(self, view: JobView, job: NewJob) -> None:
        if view.state in FINAL and is_elsewhere(view):
            edit = Edit(due_at=job.due_at, args=job.args, stage=job.stage, gates=job.gates)
            await self._act((view.id,), Verb.RETRY, edit, "the row is ours again")
        elif view.state in QUEUED and view.args != job.args:
            edit = Edit(args=job.args, stage=job.stage, gates=job.gates)
            await self._act((view.id,), Verb.EDIT, edit, "the row was changed")

    async def _act(self, ids: tuple[str, ...], verb: Verb, edit: Edit, reason: str) -> None:
        request = ActRequest(
            request=uuid4().hex, ids=ids, verb=verb, edit=edit, author=AUTHOR, reason=reason
        )
        await self._store().act(request)
