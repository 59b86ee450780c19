"""What several pages need of the store: read once for all who look, and not while nobody does."""

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
"""Seconds for which a read is given to others who look at the same."""
SLOW_S = 4.0
"""The same for what takes several reads and changes little from second to second."""
SHARE = 0.01
"""Of the time, at most, that goes into one read that may be older than the freshest."""
OLDEST_S = 10.0
"""However long a read takes, it is repeated after this."""
KEPT = 600
"""Samples of each series: ten minutes, while somebody looks."""
GATES_KEPT = 200
"""Gates whose use is remembered: those in use, by name."""
NEWEST = 100
"""Starts whose lateness is looked at."""


@dataclass(kw_only=True, slots=True)
class GateTrack:
    """What was seen of one gate.

    Attributes:
        used: when, and how many permits were out.
        freed: the moments at which permits came back, as far as they were seen.
        held: the permits that were out at the last look.
    """

    used: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    freed: deque[int] = field(default_factory=lambda: deque(maxlen=20))
    held: frozenset[tuple[str, int]] = frozenset()

    def note(self, gate: GateState, now: int) -> None:
        """Note a gate as it stands."""
        self.used.append((now, gate.used))
        held = frozenset((one.job, one.run) for one in gate.holders)
        self.freed.extend(now for _ in range(len(self.held - held)))
        self.held = held

    @property
    def each_ms(self) -> float | None:
        """How long it took from one permit that came back to the next; None if unknown."""
        if len(self.freed) < 3:
            return None
        return (self.freed[-1] - self.freed[0]) / (len(self.freed) - 1)

    def next_free_at(self, now: int) -> int | None:
        """When the next permit comes back by that pace, ms UTC; None if unknown or often."""
        each = self.each_ms
        if each is None or each < 1_000:
            return None
        at = round(self.freed[-1] + each)
        # One that is late comes any moment, and not in the past.
        return at if at > now else now + 1_000


class History:
    """What was seen while somebody looked, and since when."""

    def __init__(self) -> None:
        self.totals: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=KEPT)
        self.finished: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=60)
        self.gates: dict[str, GateTrack] = {}

    def note(self, seen: Overview) -> None:
        """Note an overview."""
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
        """Return how often a second something was counted lately; None before the second look."""
        if len(self.totals) < 2:
            return None
        at, last = self.totals[-1]
        since, first = next(one for one in self.totals if at - one[0] <= span_ms or one[0] == at)
        if since == at:
            since, first = self.totals[-2]
        return max(0, last.get(total, 0) - first.get(total, 0)) * 1000 / (at - since)

    def steps(self, total: str, step_ms: int = 5_000, most: int = 60) -> list[float | None]:
        """Return the rate in each of the last steps, oldest first; None where nobody looked."""
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
        """Return how many jobs of a lane ended a second lately; None before the second look."""
        if len(self.finished) < 2:
            return None
        counts = [one.get(lane, 0) for _, one in self.finished]
        # Those that were forgotten meanwhile are not jobs that came back.
        grown = sum(max(0, after - before) for before, after in pairwise(counts))
        return grown * 1000 / (self.finished[-1][0] - self.finished[0][0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Lateness:
    """From due to first start, of jobs that started lately, ms; None without any."""

    starts: int
    p50_ms: int | None
    p99_ms: int | None


class Sight:
    """Reads for all who look."""

    def __init__(self, store: Store, timing: Timing) -> None:
        """Read nothing yet."""
        self.store = store
        self.history = History()
        self._timing = timing
        self._found: dict[Hashable, tuple[float, object]] = {}
        self._locks: dict[Hashable, asyncio.Lock] = {}

    async def overview(self) -> Overview:
        """Return the whole store, not older than a second."""
        return await self.once("overview", self._overview)

    async def latencies(self, lanes: Sequence[str]) -> Mapping[str, LaneLatency]:
        """Return what lanes reach beside their targets, by name; a few reads for each lane."""

        async def read() -> Mapping[str, LaneLatency]:
            return {one.lane: one for one in await lane_latencies(self.store, lanes)}

        return await self.once(("latencies", *lanes), read, SLOW_S) if lanes else {}

    async def lateness(self) -> Lateness:
        """Return how late the jobs start that came last."""
        return await self.once("lateness", self._lateness, SLOW_S)

    async def stuck(self) -> Stuck:
        """Return what is held up in the whole store, by cause."""

        async def read() -> Stuck:
            return await find_stuck(self.store, await self.overview())

        return await self.once("stuck", read, 2.0)

    async def once(
        self, name: Hashable, read: Callable[[], Awaitable[Found]], fresh_s: float = FRESH_S
    ) -> Found:
        """Read something, or give what was read a moment ago.

        Args:
            name: of what is read; equal names are equal reads.
            fresh_s: how old it may be. A read that may be older than the freshest, and that takes
                long, is kept for longer: open pages must cost the store next to nothing.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            until, found = self._found.get(name, (float("-inf"), None))
            began = self._timing.monotonic()
            if began < until:
                return cast("Found", found)
            made = await read()
            ended = self._timing.monotonic()
            if fresh_s > FRESH_S:
                fresh_s = max(fresh_s, min((ended - began) / SHARE, OLDEST_S))
            self._found[name] = (ended + fresh_s, made)
            self._forget_old()
            return made

    def expire(self) -> None:
        """Read everything again at the next look: something was changed."""
        self._found.clear()

    def _forget_old(self) -> None:
        """Name hold what users ask: they must not gather."""
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
