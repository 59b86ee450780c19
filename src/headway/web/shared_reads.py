"""Reads of the store shared by pages: cached for all browsers, and idle while none is open."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar, cast

from headway.contract.store import Store
from headway.contract.views import GateState, JobsQuery
from headway.core.state import FINAL, HELD
from headway.runtime.latency import LaneLatency, lane_latencies, percentile
from headway.runtime.timing import Timing
from headway.server.finding import bounded_page
from headway.server.overview import Overview, read_overview
from headway.web.stuck import Stuck, find_stuck

Found = TypeVar("Found")

FRESH_S = 0.8
"""Seconds for which a read is cached."""
SLOW_S = 4.0
"""Seconds for which a result is cached that takes several reads and changes slowly."""
SHARE = 0.01
"""Maximum share of time spent on one read whose cache time is longer than `FRESH_S`."""
OLDEST_S = 10.0
"""Seconds after which even a slow read is repeated."""
RECENT_MS = 60_000
"""A rate is of samples of the last minute: while no browser watches there are none."""
KEPT = 600
"""Samples per series: ten minutes, while a browser watches."""
GATES_KEPT = 200
"""Maximum number of gates whose use is recorded."""
NEWEST = 100
"""Number of newest jobs whose first start is examined for lateness."""


@dataclass(kw_only=True, slots=True)
class GateTrack:
    """Samples of one gate.

    Attributes:
        used: Times (ms UTC) with the number of permits held.
        freed: Times (ms UTC) of the samples in which permits had been given back.
        held: The permits held at the last sample, as job and run.
    """

    used: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    freed: deque[int] = field(default_factory=lambda: deque(maxlen=20))
    held: frozenset[tuple[str, int]] = frozenset()

    def note(self, gate: GateState, now: int) -> None:
        """Add a sample."""
        if self.used and now - self.used[-1][0] > RECENT_MS:
            self.freed.clear()
            self.held = frozenset()
        self.used.append((now, gate.used))
        held = frozenset((one.job, one.run) for one in gate.holders)
        self.freed.extend(now for _ in range(len(self.held - held)))
        self.held = held

    @property
    def each_ms(self) -> float | None:
        """Average time between two permits given back; None if unknown."""
        if len(self.freed) < 3:
            return None
        return (self.freed[-1] - self.freed[0]) / (len(self.freed) - 1)

    def next_free_at(self, now: int) -> int | None:
        """Estimate when the next permit is given back, ms UTC.

        Return None if that is unknown, or happens more often than once a second.
        """
        each = self.each_ms
        if each is None or each < 1_000:
            return None
        at = round(self.freed[-1] + each)
        # An overdue one is expected at any moment, not in the past.
        return at if at > now else now + 1_000


class OverviewHistory:
    """Samples of the overview, recorded while a browser watches."""

    def __init__(self) -> None:
        self.totals: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=KEPT)
        self.finished: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=60)
        self.gates: dict[str, GateTrack] = {}

    def note(self, seen: Overview) -> None:
        """Add an overview as a sample."""
        now = seen.stats.now
        if self.totals and now <= self.totals[-1][0]:
            return
        self.totals.append((now, seen.stats.totals))
        counts = {
            lane.name: sum(lane.counts.get(state, 0) for state in FINAL) for lane in seen.lanes
        }
        self.finished.append((now, counts))
        for gate in seen.gates:
            track = self.gates.get(gate.name)
            if track is None and (not gate.used or len(self.gates) >= GATES_KEPT):
                continue
            if track is None:
                track = self.gates[gate.name] = GateTrack()
            track.note(gate, now)

    def rate(self, total: str, span_ms: int = 10_000) -> float | None:
        """Return the recent rate of a total, per second; None without two recent samples."""
        if len(self.totals) < 2:
            return None
        at, last = self.totals[-1]
        since, first = next(one for one in self.totals if at - one[0] <= span_ms or one[0] == at)
        if since == at:
            since, first = self.totals[-2]
        if at - since > RECENT_MS:
            return None
        return max(0, last.get(total, 0) - first.get(total, 0)) * 1000 / (at - since)

    def steps(self, total: str, step_ms: int = 5_000, most: int = 60) -> list[float | None]:
        """Return the rate per second in each of the last steps, oldest first.

        A step without samples, because no browser watched, is None.
        """
        if not self.totals:
            return []
        end = self.totals[-1][0] // step_ms
        ends: dict[int, tuple[int, int]] = {}
        for at, totals in self.totals:
            ends[at // step_ms] = (at, totals.get(total, 0))
        found: list[float | None] = []
        for step in range(end - most, end):
            before, after = ends.get(step - 1), ends.get(step)
            if before is None or after is None:
                found.append(None)
            else:
                found.append(max(0, after[1] - before[1]) * 1000 / (after[0] - before[0]))
        return found

    def finished_rate(self, lane: str) -> float | None:
        """Return how many jobs of a lane finished per second; None without two recent samples."""
        recent = [one for one in self.finished if self.finished[-1][0] - one[0] <= RECENT_MS]
        if len(recent) < 2:
            return None
        counts = [one.get(lane, 0) for _, one in recent]
        # A count falls when jobs are removed after their retention: ignore that.
        grown = sum(max(0, after - before) for before, after in pairwise(counts))
        return grown * 1000 / (recent[-1][0] - recent[0][0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Lateness:
    """Time from due to first start of recently started jobs, ms; None if there are none."""

    starts: int
    p50_ms: int | None
    p99_ms: int | None


class SharedReads:
    """Cached reads of the store, shared by all pages."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self.store = store
        self.history = OverviewHistory()
        self._timing = timing
        self._found: dict[Hashable, tuple[float, object]] = {}
        self._locks: dict[Hashable, asyncio.Lock] = {}

    async def overview(self) -> Overview:
        """Return the overview of the store, at most a second old."""
        return await self.cached("overview", self._overview)

    async def latencies(self, lanes: Sequence[str]) -> Mapping[str, LaneLatency]:
        """Return the latencies of lanes and their targets, by name; takes a few reads per lane."""

        async def read() -> Mapping[str, LaneLatency]:
            return {one.lane: one for one in await lane_latencies(self.store, lanes)}

        return await self.cached(("latencies", *lanes), read, SLOW_S) if lanes else {}

    async def lateness(self) -> Lateness:
        """Return the lateness of the newest jobs' first starts."""
        return await self.cached("lateness", self._lateness, SLOW_S)

    async def stuck(self) -> Stuck:
        """Return what is held up in the whole store, by cause."""

        async def read() -> Stuck:
            return await find_stuck(self.store, await self.overview())

        return await self.cached("stuck", read, 2.0)

    async def cached(
        self, name: Hashable, read: Callable[[], Awaitable[Found]], fresh_s: float = FRESH_S
    ) -> Found:
        """Return the cached result of a read, or read now; concurrent callers share one read.

        Args:
            name: The cache key.
            fresh_s: Seconds for which the result is cached. If that is more than `FRESH_S`, a slow
                read is cached for longer, so that open pages cost the store next to nothing.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            cached = self._found
            until, found = cached.get(name, (float("-inf"), None))
            began = self._timing.monotonic()
            if began < until:
                return cast("Found", found)
            made = await read()
            ended = self._timing.monotonic()
            if fresh_s > FRESH_S:
                fresh_s = max(fresh_s, min((ended - began) / SHARE, OLDEST_S))
            cached[name] = (ended + fresh_s, made)
            self._forget_old()
            return made

    def expire(self) -> None:
        """Clear the cache, because an action has changed something.

        A read that began before is not cached, either.
        """
        self._found = {}

    def _forget_old(self) -> None:
        """Bound the cache: its keys contain users' filters."""
        if len(self._found) > 200:
            self._found.clear()
            self._locks = {k: lock for k, lock in self._locks.items() if lock.locked()}

    async def _overview(self) -> Overview:
        seen = await read_overview(self.store)
        self.history.note(seen)
        return seen

    async def _lateness(self) -> Lateness:
        states = (*sorted(HELD), *sorted(FINAL))
        query = JobsQuery(states=states, runs=True, newest=True, limit=NEWEST)
        page = await bounded_page(self.store, query)
        waits = sorted(
            max(0, run.claimed_at - max(run.due_at, job.created_at))
            for job in page.rows
            for run in job.runs
            if run.run == 1
        )
        return Lateness(
            starts=len(waits), p50_ms=percentile(waits, 50), p99_ms=percentile(waits, 99)
        )
