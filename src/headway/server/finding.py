"""Finding jobs, in bounded pages, or by what holds them; commands and `headway top` use it too.

A listing goes by arrival and looks at a bounded number of jobs: among many that have ended it
reaches none that is under way. Those are read from the indexes of waiting, parked, running and
awaiting jobs, so the cost depends on what is returned.

Whatever reads the store raises StoreError, here and in the rest of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from headway.contract.store import Store
from headway.contract.views import (
    EntryView,
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
from headway.core.job import fire_id
from headway.core.state import HELD, State
from headway.core.timetable.fires import latest_fires
from headway.server.caller import OPEN_CALLER, Caller

MOST_ROWS = 1_000
"""Rows of a page."""
FIRST_ROWS = 25
"""Rows of the first look; how large they are says how many more there may be."""
MOST_BYTES = 16 * 1024 * 1024
"""The most bytes of the jobs on a page. A single read may exceed it, by its own rows."""

Fits = Callable[[JobView], bool]


def any_job(_: JobView) -> bool:
    """Fit."""
    return True


async def bounded_page(store: Store, query: JobsQuery, fits: Fits = any_job) -> Page[JobView]:
    """Return a page that may end early where jobs carry much; its cursor goes on from there.

    Args:
        fits: which of them are returned. A page without those that do not fit is shorter, but for
            the jobs of a worker: of these, more are read until there are as many as asked for.
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
        # A short look means that a bounded number of rows was looked at: enough for one request.
        if cursor is None or len(page.rows) < asked:
            break
    return Page(rows=tuple(filter(fits, rows)), cursor=cursor)


async def _read_part(
    store: Store, query: JobsQuery, cursor: str | None, limit: int
) -> Page[JobView]:
    """Return a part of a page; of jobs by id, cursors are numbers of rows."""
    if query.ids is None:
        return await store.read(replace(query, cursor=cursor, limit=limit))
    first = int(cursor or 0)
    end = first + limit
    ids = query.ids[first:end]
    rows = (await store.read(replace(query, ids=ids))).rows if ids else ()
    return Page(rows=rows, cursor=str(end) if end < len(query.ids) else None)


async def _of_worker(store: Store, query: JobsQuery, fits: Fits) -> Sequence[JobView]:
    """Return the first jobs of a worker that fit; a store reads them from the first one only."""
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
    """Return about how many bytes jobs have."""
    return sum(
        1_000 + len(one.args) + len(one.result or b"") + len(one.progress or b"") for one in jobs
    )


def _room(rows: Sequence[JobView], size: int) -> int:
    """Return how many more rows of the same size there may be."""
    return (MOST_BYTES - size) // max(size // len(rows), 1)


UNDERWAY = HELD | {State.WAITING, State.PARKED}
"""The states of the jobs that are found here."""

MOST_FLOWS = 100
"""Flows of a lane or a gate that are read, and the most jobs of each."""
FIRST_OF_FLOW = 10
"""Jobs of each flow that are read at first."""
MOST_GATES = 50
"""Gates whose parked jobs are read."""
MOST_LANES = 10
"""Lanes whose waiting jobs are read: those that hold the most."""
MOST_WORKERS = 50
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
    """Return the flows that wait in lanes, with the first jobs of each; 100 of each lane."""
    return await _flows(store, (FlowsQuery(lane=one, first=first) for one in lanes))


async def parked_gates(store: Store) -> Page[GateState]:
    """Return the first 50 gates at which jobs are parked."""
    return await store.read(GatesQuery(parked=True, limit=MOST_GATES))


async def parked_flows(store: Store, gates: Iterable[GateState], first: int = 1) -> Flows:
    """Return the flows that are parked at gates, with the first jobs of each; 100 of each gate."""
    return await _flows(store, (FlowsQuery(gate=one.name, first=first) for one in gates))


async def _flows(store: Store, queries: Iterable[FlowsQuery]) -> Flows:
    pages = [await store.read(replace(one, limit=MOST_FLOWS)) for one in queries]
    rows = [flow for page in pages for flow in page.rows]
    return Flows(rows=rows, more=any(page.cursor is not None for page in pages))


async def first_jobs(
    store: Store, flows: Iterable[WaitingFlow], limit: int = 100
) -> Sequence[JobView]:
    """Return the first jobs of flows, the earliest due first, without those that started."""
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
        workers: that may hold them.
        each: jobs of one worker, at most.
        most: after so many jobs no further worker is read.
        fits: which jobs are returned.
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
    """Return jobs under way that fit a query, whatever else the store holds.

    Those are waiting, parked, running and awaiting jobs; scheduled ones are not found.

    Args:
        query: its lane, tenant, kind, states (none for any) and limit count; it names no key or
            subject.
        caller: who sees them.

    Returns:
        Those that wait, the earliest due first; then those that run or await, with their runs.
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
            # Most awaiting jobs are held by no worker.
            asked = replace(query, states=(State.AWAITING,), runs=True, limit=left)
            found |= {one.id: one for one in (await bounded_page(store, asked, held)).rows}
        jobs += sorted(found.values(), key=_started)[:left]
    return jobs


def _waiting(lane: LaneView) -> int:
    return lane.counts.get(State.WAITING, 0)


async def some_jobs(store: Store, query: JobsQuery) -> Sequence[JobView]:
    """Return the first jobs of a listing; if it reaches none from its beginning, the last."""
    page = await store.read(query)
    if not page.rows and page.cursor is not None:
        page = await store.read(replace(query, newest=True))
    return page.rows


RECENT = 5
"""Moments before now at which an entry may have fired, whose jobs are looked for by their ids."""
EARLIER = 2
"""Revisions under which such a fire may have been laid besides the present one: switching an entry
off and on makes two."""
NOT_FIRED = frozenset({State.SCHEDULED, State.CANCELLED})


async def last_fires(store: Store, entries: Iterable[EntryView], now: int) -> dict[str, int]:
    """Return the last moment at which each entry fired, as far as the job is kept.

    A moment that is laid ahead, folded or dropped by an edit does not count. `last_fired` of an
    entry does not say it: it is the moment up to which nothing is fired any more.
    """
    fired = [one for one in entries if one.last_fired is not None]
    recent = [
        (one, latest_fires(one.spec.schedule, one.first_seen_at - 1, now, RECENT)) for one in fired
    ]
    ids = tuple(id_ for entry, moments in recent for id_ in fire_ids(entry, moments))
    found: dict[str, int] = {}
    for first in range(0, len(ids), MOST_ROWS):
        query = JobsQuery(ids=ids[first : first + MOST_ROWS], limit=MOST_ROWS)
        _note_fires(found, (await store.read(query)).rows)
    # Those whose schedule was another, or whose last fires were folded.
    left = {(one.spec.job.lane, one.spec.job.kind) for one in fired if one.spec.name not in found}
    begun = tuple(state for state in State if state not in NOT_FIRED)
    for lane, kind in sorted(left):
        query = JobsQuery(lane=lane, kind=kind, states=begun, newest=True, limit=MOST_ROWS)
        _note_fires(found, (await store.read(query)).rows)
    return found


def fire_ids(entry: EntryView, moments: Iterable[int]) -> dict[str, int]:
    """Return the ids that jobs of an entry's fires may have, each with its moment."""
    return {
        fire_id(entry.spec.name, entry.first_seen_at, revision, moment): moment
        for moment in moments
        for revision in range(max(1, entry.revision - EARLIER), entry.revision + 1)
    }


def has_fired(job: JobView) -> bool:
    """Return whether a fire's job has come due and was not dropped before."""
    return bool(job.run) or job.state not in NOT_FIRED


def _note_fires(found: dict[str, int], jobs: Iterable[JobView]) -> None:
    for job in jobs:
        if has_fired(job) and job.entry is not None and job.fired_at is not None:
            found[job.entry] = max(found.get(job.entry, 0), job.fired_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTimes:
    """What the time of a run went into, in ms."""

    for_worker: int
    at_gates: int
    ran: int
    awaited: int


def run_times(job: JobView, run: RunView, now: int) -> RunTimes:
    """Return what the time of a run went into, up to now if it has not ended."""
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
