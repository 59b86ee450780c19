"""Latency: how long each lane's jobs wait from due to start, compared with the lane's target."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from headway.contract.store import Store
from headway.contract.views import (
    FlowsQuery,
    JobsQuery,
    JobView,
    LanesQuery,
    LaneView,
    StatsQuery,
    WhyQuery,
)
from headway.core.state import FINAL, HELD, State

NEWEST = 100
"""Maximum number of started jobs examined per lane."""
MOST_STARTS = 500
"""Maximum number of started jobs read at once for all lanes."""
MOST_PAGES = 10
"""Maximum number of such reads; together they examine as many jobs as a listing of one lane."""
MOST_SEPARATE = 5
"""Maximum number of lanes that are listed separately."""
LARGE = 4 * 1024 * 1024
"""Size of the jobs on a page from which it may have few rows because they are large."""
RECENT_MS = 3_600_000
"""Age in ms above which a start is ignored."""
FLOWS = 16
"""Number of a lane's flows whose first jobs are read, the same as stores read for the due time of
the lane's oldest job."""
MOST_LANES = 200
"""Maximum number of lanes examined if none are named."""

_STARTED = (*sorted(HELD), *sorted(FINAL))


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneLatency:
    """How long the jobs of a lane wait from due to start.

    Attributes:
        lane: name of the lane.
        target_ms: its latency target; None if it has none.
        starts: number of first starts in the last hour that the figures cover; at most 100.
        p50_ms: median wait; None without starts.
        p95_ms: 95th percentile of the wait.
        max_ms: longest wait.
        head_ms: how long the job at the head has been waiting; None if there is none.
        handlers_missing: whether the head has waited longer than the target although every gate
            that it needs is open, except for the lane's own concurrency.
        breached: whether `p95_ms` is above the target, or handlers are missing.
    """

    lane: str
    target_ms: int | None
    starts: int
    p50_ms: int | None
    p95_ms: int | None
    max_ms: int | None
    head_ms: int | None
    handlers_missing: bool
    breached: bool


async def lane_latencies(
    store: Store,
    names: Sequence[str] | None = None,
    *,
    covers: Callable[[str], bool] = lambda _: True,
) -> tuple[LaneLatency, ...]:
    """Compare each lane's latency with its target; takes at most a few bounded reads per lane.

    A wait lasts from the job's due time (or its creation, if that is later) to its first start, and
    so includes the time spent waiting at gates.

    Args:
        names: lanes; None for the first 200, with those that have a target first.
        covers: returns whether to include a lane; others do not count towards these 200.

    Returns:
        One per lane, sorted by name, or in the order of `names`.
    """
    found = await store.read(LanesQuery(names=None if names is None else tuple(names)))
    lanes = tuple(lane for lane in found if covers(lane.name))
    if names is None and len(lanes) > MOST_LANES:
        by_target = sorted(lanes, key=lambda lane: (lane.spec.target_ms is None, lane.name))
        lanes = tuple(sorted(by_target[:MOST_LANES], key=lambda lane: lane.name))
    now = (await store.read(StatsQuery())).now
    waits = await _waits(store, lanes, now - RECENT_MS)
    return tuple([await _latency(store, lane, sorted(waits[lane.name]), now) for lane in lanes])


async def _waits(store: Store, lanes: Iterable[LaneView], since: int) -> dict[str, list[int]]:
    """Return the waits of the newest started jobs of each lane; the jobs may be large.

    A listing of one lane examines as many jobs as a listing of all. So lanes are listed together
    while many of them have too few rows, and the last few separately.
    """
    short = {one.name for one in lanes if any(one.counts.get(state) for state in _STARTED)}
    query = JobsQuery(states=_STARTED, runs=True, newest=True, limit=MOST_STARTS)
    found, counts = defaultdict[str, list[int]](list), Counter[str]()
    pages = 0
    while len(short) > (MOST_SEPARATE if pages else 1):
        if pages == MOST_PAGES:
            return found
        page = await store.read(query)
        pages += 1
        for job in page.rows:
            if job.lane in short:
                found[job.lane] += _first_wait(job, since)
                counts[job.lane] += 1
                if counts[job.lane] == NEWEST:
                    short.remove(job.lane)
        is_short = len(page.rows) < MOST_STARTS and sum(map(_size, page.rows)) < LARGE
        if page.cursor is None or is_short:
            # It examined as many jobs as a listing of one lane does.
            return found
        query = replace(query, cursor=page.cursor)
    for lane in short:
        own = replace(query, lane=lane, limit=NEWEST, cursor=None)
        rows = (await store.read(own)).rows
        found[lane] = [wait for job in rows for wait in _first_wait(job, since)]
    return found


async def _latency(store: Store, lane: LaneView, waits: Sequence[int], now: int) -> LaneLatency:
    target = lane.spec.target_ms
    head = None if lane.oldest_due_at is None else max(0, now - lane.oldest_due_at)
    p95 = percentile(waits, 95)
    missing = False
    if target is not None and head is not None and head > target:
        job = await _head(store, lane)
        # A job that was due before it was created has waited only since its creation.
        head = now - max(job.due_at, job.created_at) if job else None
        if job and head is not None and head > target:
            missing = await _only_handlers_missing(store, lane, job)
    return LaneLatency(
        lane=lane.name,
        target_ms=target,
        starts=len(waits),
        p50_ms=percentile(waits, 50),
        p95_ms=p95,
        max_ms=waits[-1] if waits else None,
        head_ms=head,
        handlers_missing=missing,
        breached=missing or (target is not None and p95 is not None and p95 > target),
    )


def _size(job: JobView) -> int:
    return len(job.args) + len(job.result or b"") + len(job.progress or b"")


def _first_wait(job: JobView, since: int) -> list[int]:
    """Return a job's wait for its first start in ms; nothing if that is too old or unknown."""
    return [
        max(0, run.claimed_at - max(run.due_at, job.created_at))
        for run in job.runs
        if run.run == 1 and run.claimed_at >= since
    ]


def percentile(waits: Sequence[int], percent: int) -> int | None:
    """Return a percentile by the nearest-rank method; None if there are no waits.

    Args:
        waits: in ascending order.
        percent: 1 to 100.
    """
    return waits[-(-len(waits) * percent // 100) - 1] if waits else None


async def _head(store: Store, lane: LaneView) -> JobView | None:
    """Return the job with the earliest due time among the heads of the lane's first flows."""
    flows = await store.read(FlowsQuery(lane=lane.name, limit=FLOWS))
    ids = tuple(id for flow in flows.rows for id in flow.first)
    jobs = (await store.read(JobsQuery(ids=ids))).rows if ids else ()
    waiting = (one for one in jobs if one.state is State.WAITING)
    return min(waiting, key=lambda one: one.due_at, default=None)


async def _only_handlers_missing(store: Store, lane: LaneView, job: JobView) -> bool:
    """Return whether a waiting job could start if a worker claimed it."""
    why = await store.read(WhyQuery(id=job.id))
    return why is not None and all(
        gate.name == f"lane:{lane.name}" and gate.closed_until is None for gate in why.closed
    )
