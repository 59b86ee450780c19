"""Finding jobs in bounded pages, and jobs under way; commands and `headway top` use it too.

A listing is in order of arrival and examines a bounded number of jobs: among many final jobs it
may not reach any that is under way. Those are read from the indexes of waiting, parked, running
and awaiting jobs, so that the cost depends on the number of jobs returned.

All functions that read the store raise StoreError, here and in the rest of the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from headway.contract.store import Store
from headway.contract.views import (
    FlowsQuery,
    GatesQuery,
    GateState,
    JobsQuery,
    JobView,
    LanesQuery,
    LaneView,
    Page,
    RunView,
    WaitingFlow,
    WorkersQuery,
    WorkerView,
)
from headway.core.state import HELD, State
from headway.server.caller import OPEN_CALLER, Caller

MOST_ROWS = 1_000
"""Maximum number of rows of a page."""
FIRST_ROWS = 25
"""Rows of the first read; their size determines how many more to read."""
MOST_BYTES = 16 * 1024 * 1024
"""Maximum size of the jobs on a page, in bytes; a single read may exceed it."""

Fits = Callable[[JobView], bool]


def any_job(_: JobView) -> bool:
    """Accept any job."""
    return True


def ended_since(job: JobView, since: int | None) -> bool:
    """Return whether a job ended at or after a time (ms); every job passes if it is None."""
    return since is None or (job.finished_at is not None and job.finished_at >= since)


async def jobs_by_id(store: Store, ids: Iterable[str]) -> AsyncGenerator[JobView]:
    """Yield the jobs with these ids, without those that do not exist."""
    wanted = tuple(ids)
    for first in range(0, len(wanted), MOST_ROWS):
        query = JobsQuery(ids=wanted[first : first + MOST_ROWS], limit=MOST_ROWS)
        for job in (await store.read(query)).rows:
            yield job


async def bounded_page(store: Store, query: JobsQuery, fits: Fits = any_job) -> Page[JobView]:
    """Read a page that may end early if jobs are large; its cursor continues from there.

    Args:
        fits: which jobs to return. Others make the page shorter, except for jobs of a worker, of
            which more are read until the limit is reached.
    """
    if query.worker is not None and query.ids is None:
        return Page(rows=tuple(await _of_worker(store, query, fits)), cursor=None)
    rows: list[JobView] = []
    size = 0
    cursor = query.cursor
    while True:
        room = query.limit - len(rows)
        if rows:
            room = min(room, _room(rows, size))
        asked = min(room, FIRST_ROWS) if not rows else room
        if asked <= 0:
            break
        page = await _read_part(store, query, cursor, asked)
        rows += page.rows
        size += size_of(page.rows)
        cursor = page.cursor
        # A short read means that the store has examined its maximum number of rows for a request.
        if cursor is None or len(page.rows) < asked:
            break
    return Page(rows=tuple(filter(fits, rows)), cursor=cursor)


async def _read_part(
    store: Store, query: JobsQuery, cursor: str | None, limit: int
) -> Page[JobView]:
    """Read a part of a page; for jobs by id, cursors are row numbers."""
    if query.ids is None:
        return await store.read(replace(query, cursor=cursor, limit=limit))
    first = int(cursor or 0)
    end = first + limit
    ids = query.ids[first:end]
    rows = (await store.read(replace(query, ids=ids))).rows if ids else ()
    return Page(rows=rows, cursor=str(end) if end < len(query.ids) else None)


async def _of_worker(store: Store, query: JobsQuery, fits: Fits) -> Sequence[JobView]:
    """Read the first jobs of a worker that fit; this listing has no cursors."""
    asked = min(query.limit, FIRST_ROWS)
    while True:
        rows = (await store.read(replace(query, limit=asked))).rows
        found = [one for one in rows if fits(one)][: query.limit]
        if len(rows) < asked or len(found) == query.limit:
            return found
        more = asked + _room(rows, size_of(rows))
        more = min(more, MOST_ROWS, max(query.limit, 2 * asked))
        if more <= asked:
            return found
        asked = more


def size_of(jobs: Sequence[JobView]) -> int:
    """Estimate the size of jobs in bytes."""
    return sum(
        1_000 + len(one.args) + len(one.result or b"") + len(one.progress or b"") for one in jobs
    )


def _room(rows: Sequence[JobView], size: int) -> int:
    """Return how many more rows of the average size fit on the page."""
    return (MOST_BYTES - size) // max(size // len(rows), 1)


UNDERWAY = HELD | {State.WAITING, State.PARKED}
"""States of jobs under way."""

MOST_FLOWS = 100
"""Maximum number of flows of a lane or a gate, and of jobs of each flow."""
FIRST_OF_FLOW = 10
"""Number of jobs of each flow in the first read."""
MOST_GATES = 50
"""Maximum number of gates whose parked jobs are read."""
MOST_LANES = 10
"""Maximum number of lanes whose waiting jobs are read: those with the most."""
MOST_WORKERS = 50
"""Maximum number of workers whose jobs are read: those with the most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flows:
    """Flows of lanes or gates.

    Attributes:
        rows: by lane or gate, then by number.
    """

    rows: Sequence[WaitingFlow] = ()
    more: bool = False


async def waiting_flows(store: Store, lanes: Sequence[str], first: int = 1) -> Flows:
    """Read up to 100 flows of each lane, with the first waiting jobs of each flow."""
    return await _flows(store, (FlowsQuery(lane=one, first=first) for one in lanes))


async def parked_gates(store: Store) -> Page[GateState]:
    """Read the first 50 gates at which jobs are parked."""
    return await store.read(GatesQuery(parked=True, limit=MOST_GATES))


async def parked_flows(store: Store, gates: Iterable[GateState], first: int = 1) -> Flows:
    """Read up to 100 flows of each gate, with the first parked jobs of each flow."""
    return await _flows(store, (FlowsQuery(gate=one.name, first=first) for one in gates))


async def _flows(store: Store, queries: Iterable[FlowsQuery]) -> Flows:
    pages = [await store.read(replace(one, limit=MOST_FLOWS)) for one in queries]
    rows = [flow for page in pages for flow in page.rows]
    return Flows(rows=rows, more=any(page.cursor is not None for page in pages))


async def first_jobs(
    store: Store, flows: Iterable[WaitingFlow], limit: int = 100
) -> Sequence[JobView]:
    """Read the first jobs of flows that have not started since, the earliest due first."""
    names = [flow.first for flow in flows]
    # The first job of each flow, then the second one of each, and so on.
    turns = [
        ids[n] for n in range(max(map(len, names), default=0)) for ids in names if n < len(ids)
    ]
    if not turns:
        return []
    query = JobsQuery(ids=tuple(turns[:limit]), limit=limit)
    page = await bounded_page(store, query, lambda one: one.state in UNDERWAY - HELD)
    return sorted(page.rows, key=lambda one: (one.due_at, one.seq))


async def held_jobs(
    store: Store,
    workers: Iterable[WorkerView],
    each: int,
    most: int | None = None,
    fits: Fits = any_job,
) -> list[JobView]:
    """Read running and awaiting jobs with their runs, in order of their starts.

    Args:
        each: maximum number of jobs of each worker.
        most: number of jobs after which no further worker is read.
    """
    busy = sorted((one for one in workers if one.running), key=lambda one: -one.running)
    found: list[JobView] = []

    def held(one: JobView) -> bool:
        return one.state in HELD and fits(one)

    for worker in busy[:MOST_WORKERS]:
        if (most is not None and len(found) >= most) or size_of(found) >= MOST_BYTES:
            break
        query = JobsQuery(worker=worker.id, runs=True, limit=each)
        found += (await bounded_page(store, query, held)).rows
    return sorted(found, key=_started)


def _started(job: JobView) -> int:
    return job.runs[-1].claimed_at if job.runs else 0


async def underway_jobs(
    store: Store, query: JobsQuery, caller: Caller = OPEN_CALLER
) -> list[JobView]:
    """Read the waiting, parked, running and awaiting jobs that match a query.

    Args:
        query: only its lane, tenant, kind, states (None for all) and limit apply.
        caller: jobs outside the caller's scope are omitted.

    Returns:
        Waiting and parked jobs, the earliest due first; then running and awaiting jobs with their
        runs, the first started first.
    """
    states, limit = set(query.states or State), query.limit

    def fits(one: JobView | WaitingFlow) -> bool:
        return (
            query.lane in {None, one.lane}
            and query.tenant in {None, one.tenant}
            and query.kind in {None, one.kind}
            and caller.sees(one)
        )

    def held(one: JobView) -> bool:
        return one.state in states and fits(one)

    lanes: list[str] = []
    if State.WAITING in states:
        names = None if query.lane is None else (query.lane,)
        seen = await store.read(LanesQuery(names=names))
        views = [one for one in seen if _waiting(one) and caller.covers(one.name)]
        lanes = [one.name for one in sorted(views, key=_waiting, reverse=True)[:MOST_LANES]]
    gates = (await parked_gates(store)).rows if State.PARKED in states else ()

    async def flows(first: int) -> list[WaitingFlow]:
        waiting = (await waiting_flows(store, lanes, first)).rows
        parked = (await parked_flows(store, gates, first)).rows
        return [flow for flow in (*waiting, *parked) if fits(flow)]

    some = await flows(FIRST_OF_FLOW)
    missing = limit - sum(len(flow.first) for flow in some)
    if missing > 0 and any(len(flow.first) == FIRST_OF_FLOW for flow in some):
        some = await flows(min(MOST_FLOWS, FIRST_OF_FLOW + missing))
    jobs = [one for one in await first_jobs(store, some, limit) if one.state in states]
    if states & HELD and len(jobs) < limit:
        workers = await store.read(WorkersQuery())
        left = limit - len(jobs)
        found = {one.id: one for one in await held_jobs(store, workers, left, left, held)}
        if State.AWAITING in states and len(found) < left:
            # Most awaiting jobs are not held by a worker.
            asked = replace(query, states=(State.AWAITING,), runs=True, limit=left)
            found |= {one.id: one for one in (await bounded_page(store, asked, held)).rows}
        jobs += sorted(found.values(), key=_started)[:left]
    return jobs


def _waiting(lane: LaneView) -> int:
    return lane.counts.get(State.WAITING, 0)


async def oldest_or_newest_jobs(store: Store, query: JobsQuery) -> Sequence[JobView]:
    """Read the first page of a listing; if it is empty but not the last one, the newest jobs."""
    page = await store.read(query)
    if not page.rows and page.cursor is not None:
        page = await store.read(replace(query, newest=True))
    return page.rows


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTimes:
    """How the time of a run was spent, in ms."""

    for_worker: int
    at_gates: int
    ran: int
    awaited: int


def run_times(job: JobView, run: RunView, now: int) -> RunTimes:
    """Return how the time of a run was spent, up to now if it has not ended."""
    waited = max(0, run.claimed_at - max(run.due_at, job.created_at))
    ended = now if run.ended_at is None else run.ended_at
    handed = ended if run.handed_at is None else run.handed_at
    at_gates = min(waited, run.blocked_ms)
    return RunTimes(
        for_worker=waited - at_gates,
        at_gates=at_gates,
        ran=max(0, handed - run.claimed_at),
        awaited=max(0, ended - handed),
    )
