"""How systems read and change the jobs of a store: runs, pages of jobs, moves, queue lengths."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from uuid import uuid4

from headway.contract.operate import ActReply, ActRequest, Edit, Verb
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobsQuery, JobView, LaneView, RunView
from headway.core.check import is_job_id
from headway.core.errors import UnknownRecord
from headway.core.state import QUEUED
from headway.server.caller import Caller
from headway.server.overview import Overview


def ref_of(job: JobView) -> str:
    """Return the reference of a job's last run, the key under which a signal finds it."""
    return f"{job.id}:{job.run}"


def find_run(job: JobView, number: int) -> RunView | None:
    """Return the run with a number; None if the job has none, or was read without its runs."""
    return next((one for one in job.runs if one.run == number), None)


async def read_pages(store: Store, query: JobsQuery) -> AsyncGenerator[Sequence[JobView]]:
    """Read the jobs that a query finds, page by page until the end."""
    while True:
        page = await store.read(query)
        yield page.rows
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


async def seen_job(  # noqa: PLR0913  (what a job is, and what it is called)
    store: Store, caller: Caller, kind: str, lane: str, job_id: str, *, noun: str, hint: str
) -> JobView:
    """Return a job of a system, with its runs and trail.

    Args:
        kind: of the system's jobs.
        lane: of these too: a caller of another lane can make jobs of any kind there.
        noun: what the system calls one.
        hint: of the error.

    Raises:
        UnknownRecord: there is none that the caller sees.
    """
    found = await store.read(JobQuery(id=job_id)) if is_job_id(job_id) else None
    if found is None or (found.kind, found.lane) != (kind, lane) or not caller.sees(found):
        message = f"there is no {noun} {job_id[:64]!r}"
        raise UnknownRecord(message, hint=hint)
    return found


async def act(
    store: Store, verb: Verb, *ids: str, author: str, reason: str = "", edit: Edit | None = None
) -> list[ActReply]:
    """Send a new request for an operator's move on up to 1000 jobs; see `Store.act`."""
    request = ActRequest(
        request=str(uuid4()),
        ids=ids,
        verb=verb,
        edit=edit or Edit(),
        author=author,
        reason=reason,
    )
    return await store.act(request)


def find_lane(overview: Overview, name: str) -> LaneView | None:
    """Return a lane of an overview; None if it has never had a job."""
    return next((one for one in overview.lanes if one.name == name), None)


def count_queued(lane: LaneView | None) -> int:
    """Return how many jobs of a lane have not started; 0 if there is no such lane."""
    return 0 if lane is None else sum(lane.counts.get(state, 0) for state in QUEUED)
