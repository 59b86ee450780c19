"""Jobs that have not ended, found by what holds them: a lane, a gate or a worker.

A listing goes by arrival and looks at a bounded number of jobs: among many that have ended it
reaches none of these. What is here is read from the indexes of waiting, parked and running jobs, so
its cost depends on what it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    WaitingFlow,
    WorkersQuery,
    WorkerView,
)
from headway.core.state import HELD, State
from headway.server.access.caller import OPEN_CALLER, Caller
from headway.server.job_pages import MOST_BYTES, Fits, any_job, bounded_page, size_of

UNDERWAY = HELD | {State.WAITING, State.PARKED}
"""The states of the jobs that are found here."""

FLOWS = 100
"""Flows of a lane or a gate that are read, and the most jobs of each."""
FIRST = 10
"""Jobs of each flow that are read at first."""
GATES = 50
"""Gates whose parked jobs are read."""
LANES = 10
"""Lanes whose waiting jobs are read: those that hold the most."""
WORKERS = 50
"""Workers whose jobs are read: those that hold the most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flows:
    """Flows that were found.

    Attributes:
        rows: by lane or gate, then by number.
        more: whether there may be others, beyond a bound.
    """

    rows: Sequence[WaitingFlow] = ()
    more: bool = False


async def waiting_flows(store: Store, lanes: Sequence[str], first: int = 1) -> Flows:
    """Return the flows that wait in lanes, with the first jobs of each; 100 of each lane.

    Raises:
        StoreError: the store cannot be read now.
    """
    pages = [await store.read(FlowsQuery(lane=one, first=first, limit=FLOWS)) for one in lanes]
    rows = [flow for page in pages for flow in page.rows]
    return Flows(rows=rows, more=any(page.cursor is not None for page in pages))


async def parked_gates(store: Store) -> Page[GateState]:
    """Return the first 50 gates at which jobs are parked.

    Raises:
        StoreError: the store cannot be read now.
    """
    return await store.read(GatesQuery(parked=True, limit=GATES))


async def parked_flows(store: Store, gates: Iterable[GateState], first: int = 1) -> Flows:
    """Return the flows that are parked at gates, with the first jobs of each; 100 of each gate.

    Raises:
        StoreError: the store cannot be read now.
    """
    pages = [await store.read(FlowsQuery(gate=one.name, first=first, limit=FLOWS)) for one in gates]
    rows = [flow for page in pages for flow in page.rows]
    return Flows(rows=rows, more=any(page.cursor is not None for page in pages))


async def first_jobs(
    store: Store, flows: Iterable[WaitingFlow], limit: int = 100
) -> Sequence[JobView]:
    """Return the first jobs of flows, the earliest due first, without those that started.

    Raises:
        StoreError: the store cannot be read now.
    """
    names = [flow.first for flow in flows]
    # The first job of each flow, then the second of each, and so on.
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
    """Return running and awaiting jobs with their runs, by when they started.

    Args:
        store: whose jobs.
        workers: that may hold them.
        each: jobs of one worker, at most.
        most: after so many jobs no further worker is read.
        fits: which jobs are returned.

    Raises:
        StoreError: the store cannot be read now.
    """
    busy = sorted((one for one in workers if one.running), key=lambda one: -one.running)
    found: list[JobView] = []

    def held(one: JobView) -> bool:
        return one.state in HELD and fits(one)

    for worker in busy[:WORKERS]:
        if (most is not None and len(found) >= most) or size_of(found) >= MOST_BYTES:
            break
        query = JobsQuery(worker=worker.id, runs=True, limit=each)
        found += (await bounded_page(store, query, held)).rows
    return sorted(found, key=lambda one: one.runs[-1].claimed_at if one.runs else 0)


async def underway_jobs(
    store: Store, query: JobsQuery, caller: Caller = OPEN_CALLER
) -> list[JobView]:
    """Return waiting, parked and running jobs that fit a query, whatever else the store holds.

    Args:
        query: its lane, tenant, kind, states (none for any) and limit count; it names no key or
            subject.
        caller: who sees them.

    Returns:
        Those that wait, the earliest due first; then those that run, with their runs.

    Raises:
        StoreError: the store cannot be read now.
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
        lanes = [one.name for one in sorted(views, key=_waiting, reverse=True)[:LANES]]
    gates = (await parked_gates(store)).rows if State.PARKED in states else ()

    async def flows(first: int) -> list[WaitingFlow]:
        waiting = (await waiting_flows(store, lanes, first)).rows
        parked = (await parked_flows(store, gates, first)).rows
        return [flow for flow in (*waiting, *parked) if fits(flow)]

    some = await flows(FIRST)
    missing = limit - sum(len(flow.first) for flow in some)
    if missing > 0 and any(len(flow.first) == FIRST for flow in some):
        some = await flows(min(FLOWS, FIRST + missing))
    jobs = [one for one in await first_jobs(store, some, limit) if one.state in states]
    if states & HELD and len(jobs) < limit:
        workers = await store.read(WorkersQuery())
        left = limit - len(jobs)
        jobs += (await held_jobs(store, workers, left, left, held))[:left]
    return jobs


def _waiting(lane: LaneView) -> int:
    return lane.counts.get(State.WAITING, 0)


async def some_jobs(store: Store, query: JobsQuery) -> Sequence[JobView]:
    """Return the first jobs of a listing; if it reaches none from its beginning, the last.

    Raises:
        StoreError: the store cannot be read now.
    """
    page = await store.read(query)
    if not page.rows and page.cursor is not None:
        page = await store.read(replace(query, newest=True))
    return page.rows
