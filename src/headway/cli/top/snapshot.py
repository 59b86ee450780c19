"""Reads what `headway top` shows: an overview, rates, latencies, the jobs of one view.

The cost of these reads does not grow with the number of jobs: the store maintains lanes, gates,
workers and counts, waiting and running jobs are found through their flows, gates and workers, and
listings of other jobs examine a bounded number of rows per page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from headway.client.calls import HttpCall, HttpReply
from headway.client.queries import read_record, underway_call
from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView, LaneView
from headway.core.state import FINAL, State
from headway.runtime.latency import LaneLatency, lane_latencies
from headway.runtime.timing import REAL, Timing
from headway.server.finding import UNDERWAY, underway_jobs
from headway.server.overview import Overview, read_overview


@dataclass(frozen=True, slots=True)
class StoreQueries:
    """Reads from a store directly."""

    store: Store

    async def overview(self) -> Overview:
        """Return the overview of the whole store."""
        return await read_overview(self.store)

    async def latencies(self, lanes: Sequence[str]) -> Sequence[LaneLatency]:
        """Return the latency of each of these lanes."""
        return await lane_latencies(self.store, lanes)

    async def underway(self, query: JobsQuery) -> Sequence[JobView]:
        """Return waiting, parked, running and awaiting jobs, as `underway_jobs` does."""
        return await underway_jobs(self.store, query)


@dataclass(frozen=True, slots=True)
class ServerQueries:
    """Reads through a server, with one request for each method."""

    ask: Callable[[HttpCall], Awaitable[HttpReply]]

    async def overview(self) -> Overview:
        """Return the same as `StoreQueries.overview`."""
        reply = await self.ask(HttpCall(method="GET", path="/v1/overview"))
        return reply.read(partial(read_record, Overview))

    async def latencies(self, lanes: Sequence[str]) -> Sequence[LaneLatency]:
        """Return the same as `StoreQueries.latencies`."""
        params = (("latency", "true"), *(("name", one) for one in lanes))
        reply = await self.ask(HttpCall(method="GET", path="/v1/lanes", params=params))
        return reply.read(
            lambda page: [read_record(LaneLatency, one["latency"]) for one in page["rows"]]
        )

    async def underway(self, query: JobsQuery) -> Sequence[JobView]:
        """Return the same as `StoreQueries.underway`."""
        reply = await self.ask(underway_call(query))
        return reply.read(lambda page: [read_record(JobView, one) for one in page["rows"]])


Queries = StoreQueries | ServerQueries


PERIOD_MS = 10_000
"""The period over which rates are computed."""
MOST_JOBS = 100
"""Maximum jobs shown in a view."""
MOST_TIMED = 20
"""Maximum lanes whose latency is read; those with a target come first."""
PAGES = 4
"""Maximum pages of a listing read at once."""


class View(StrEnum):
    """What the table shows, in the order of the keys 1 to 5."""

    LANES = "lanes"
    GATES = "gates"
    RUNNING = "running"
    WAITING = "waiting"
    DEAD = "dead"


STATES: Mapping[View, tuple[State, ...]] = {
    View.RUNNING: (State.RUNNING, State.AWAITING),
    View.WAITING: (State.WAITING, State.PARKED, State.SCHEDULED),
    View.DEAD: (State.DEAD,),
}
"""The states of the jobs in each view of jobs."""

REST_OF_LISTING = 70
REST_OF_LATENCY = 400
"""Factors of the pause after reading a listing or a latency, relative to the duration of the read:
slow reads, for example from a large and busy store, are repeated less often."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A snapshot for one view.

    Attributes:
        overview: Lanes, gates, workers and counts.
        latencies: Latencies that have been read so far, by lane.
        rates: Rates per second by the name of a total; empty in the first snapshot.
        finished: Jobs that finished per second, by lane; empty in the first snapshot.
        jobs: The jobs of the view that were found.
    """

    overview: Overview
    latencies: Mapping[str, LaneLatency]
    rates: Mapping[str, float]
    finished: Mapping[str, float]
    jobs: tuple[JobView, ...]

    def held_back(self, view: View) -> int:
        """Return how many more jobs of a view the store has than were found."""
        counts = self.overview.stats.counts
        return max(0, sum(counts.get(state, 0) for state in STATES[view]) - len(self.jobs))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counted:
    at: int
    totals: Mapping[str, int]
    finished: Mapping[str, int]


class SnapshotReader:
    """Takes snapshots of one store."""

    def __init__(
        self,
        store: Store,
        queries: Queries | None = None,
        *,
        whole: bool = False,
        timing: Timing = REAL,
    ) -> None:
        """Start without a snapshot.

        Args:
            queries: Performs operations that take many reads; by default on the store.
            whole: Whether each snapshot reads the latencies of all lanes, instead of those of the
                next lane in turn.
        """
        self._store = store
        self.queries: Queries = queries or StoreQueries(store)
        self._whole = whole
        self._latencies: dict[str, LaneLatency] = {}
        self._turn = 0
        self._counted: deque[_Counted] = deque()
        self._timing = timing
        self._starts: dict[View, str | None] = {}
        self._listed = View.LANES
        self._jobs: tuple[JobView, ...] = ()
        self._rests: dict[str, float] = {}

    async def read(self, view: View, *, fresh: bool = True) -> Snapshot:
        """Take a snapshot.

        Args:
            fresh: Whether to read the jobs even if the pause after the last read has not passed.
        """
        overview = await self.queries.overview()
        if self._whole or self._has_rested("latency"):
            async with self._rest("latency", REST_OF_LATENCY):
                await self._time(overview.lanes)
        if view is not self._listed:
            self._listed, self._jobs, fresh = view, (), True
        if view in STATES and (fresh or self._has_rested("listing")):
            async with self._rest("listing", REST_OF_LISTING):
                self._jobs = await self._find(view, overview)
        rates, finished = self._rates(overview)
        return Snapshot(
            overview=overview,
            latencies=dict(self._latencies),
            rates=rates,
            finished=finished,
            jobs=self._jobs,
        )

    async def _find(self, view: View, overview: Overview) -> tuple[JobView, ...]:
        """Return up to `MOST_JOBS` jobs of a view.

        Dead and scheduled jobs are found only in listings, newest first. If many other jobs are
        newer, each snapshot searches some pages further, and later ones start where jobs were
        found.
        """
        counts, states = overview.stats.counts, STATES[view]
        there = min(MOST_JOBS, sum(counts.get(state, 0) for state in states))
        query = JobsQuery(states=states, limit=MOST_JOBS)
        sought = there and not UNDERWAY.isdisjoint(states)
        found = {job.id: job for job in await self.queries.underway(query)} if sought else {}
        query = replace(query, runs=view is View.RUNNING, newest=True)
        cursor: str | None = None
        for number in range(PAGES):
            if len(found) >= there or (number and cursor is None):
                break
            page = await self._store.read(replace(query, cursor=cursor))
            found |= {job.id: job for job in page.rows}
            start = self._starts.get(view)
            if cursor == start and not page.rows:
                self._starts[view] = page.cursor
            # After the newest page, continue where the search has got to.
            cursor = page.cursor if number else self._starts.get(view) or page.cursor
        return tuple(found.values())[:MOST_JOBS]

    def _has_rested(self, what: str) -> bool:
        return self._timing.monotonic() >= self._rests.get(what, 0.0)

    @asynccontextmanager
    async def _rest(self, what: str, times: int) -> AsyncGenerator[None]:
        began = self._timing.monotonic()
        yield
        ended = self._timing.monotonic()
        self._rests[what] = ended + times * (ended - began)

    async def _time(self, lanes: Sequence[LaneView]) -> None:
        by_target = sorted(lanes, key=lambda lane: (lane.spec.target_ms is None, lane.name))
        names = [lane.name for lane in by_target[:MOST_TIMED]]
        self._latencies = {name: one for name, one in self._latencies.items() if name in set(names)}
        if not names:
            return
        wanted = names if self._whole else [names[self._turn % len(names)]]
        self._turn += 1
        for one in await self.queries.latencies(wanted):
            self._latencies[one.lane] = one

    def _rates(self, overview: Overview) -> tuple[dict[str, float], dict[str, float]]:
        stats = overview.stats
        ended = {
            lane.name: sum(lane.counts.get(state, 0) for state in FINAL) for lane in overview.lanes
        }
        self._counted.append(_Counted(at=stats.now, totals=stats.totals, finished=ended))
        while self._counted[0].at < stats.now - PERIOD_MS and len(self._counted) > 2:
            self._counted.popleft()
        first, last = self._counted[0], self._counted[-1]
        seconds = (last.at - first.at) / 1000
        if seconds <= 0:
            return {}, {}
        return (
            _growth(first.totals, last.totals, seconds),
            # Counts fall when jobs are removed after their retention: `_growth` ignores that.
            _growth(first.finished, last.finished, seconds),
        )


def _growth(
    before: Mapping[str, int], after: Mapping[str, int], seconds: float
) -> dict[str, float]:
    return {name: max(0, n - before.get(name, 0)) / seconds for name, n in after.items()}
