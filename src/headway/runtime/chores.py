"""Chores: sweeps, which apply what is due by time alone, and the timetable's fires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import expovariate
from weakref import WeakKeyDictionary

from headway.contract.definitions import FireRequest
from headway.contract.store import Store
from headway.contract.views import EntryView, JobsQuery, StatsQuery, TimetableQuery
from headway.core.errors import CallerError, StoreError
from headway.core.job import MAX_BATCH, TRAIL_KEPT_MS
from headway.core.timetable.fires import (
    MISSED_AFTER_MS,
    MisfirePolicy,
    fires_between,
    latest_fires,
    missed,
    next_fires,
)
from headway.runtime.inserting import batches
from headway.runtime.timing import PASSING, Timing

SWEEP_SIZE = 500
"""Maximum number of items that one sweep handles of each sort."""
DEAD_LOGGED = 100
"""Maximum number of dead jobs per sweep that are logged one by one."""
LONGEST_REST = 2.0
"""Maximum seconds between two sweeps of a lone sweeper: another process may have made something
due earlier."""
MOST_SHARING = 8
"""Number of sweepers up to which n of them each sweep about every n seconds; with more of them,
the interval grows no further."""
SHORTEST_REST = 0.02
"""Minimum seconds between two sweeps, unless one of them left work."""
MARGIN = 1.0
"""Maximum seconds by which the store's time may be ahead of its estimate."""

_log = logging.getLogger("headway.chores")


@dataclass(slots=True)
class _Turns:
    """The sweepers of one event loop, their number, and the lock held by the one that sweeps."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    size: int = 0


class Sweepers:
    """Lets one worker of an app sweep in each event loop, while the others stand by."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[_Turns]:
        """Wait for the caller's turn to sweep, which lasts until the block ends."""
        turns = self._by_loop.setdefault(asyncio.get_running_loop(), _Turns())
        turns.size += 1
        try:
            async with turns.lock:
                yield turns
        finally:
            turns.size -= 1


class Sweep:
    """Sweeps the store whenever something is due, in bounded steps."""

    def __init__(
        self,
        store: Store,
        timing: Timing,
        *,
        keep_trail_ms: int = TRAIL_KEPT_MS,
        sweepers: Sweepers | None = None,
    ) -> None:
        """Create a sweeper.

        Args:
            keep_trail_ms: age above which lines of the trail are removed.
            sweepers: workers of the same app to take turns with. If passed, the sweeps are also
                shared with the store's other workers: each process sweeps less often, so that idle
                workers cost little. A server passes none, because the workers behind it do not
                sweep.
        """
        self._store = store
        self._keep_trail_ms = keep_trail_ms
        self._timing = timing
        self._sweepers = sweepers
        self._longest = LONGEST_REST
        self._ahead_ms: float | None = None

    async def run(self) -> None:
        """Sweep until cancelled."""
        if self._sweepers is None:
            await self._sweep(None)
        else:
            async with self._sweepers.turn() as turns:
                await self._sweep(turns)

    async def _sweep(self, turns: _Turns | None) -> None:
        while True:
            try:
                reply = await self._store.sweep(SWEEP_SIZE, keep_trail_ms=self._keep_trail_ms)
                await log_dead(self._store, reply.dead)
                if turns is not None:
                    self._longest = _longest_rest(reply.workers / turns.size)
                if reply.again:
                    await self._timing.pause(0)
                else:
                    await self._rest(reply.next_at)
            except PASSING as error:
                _log.warning("sweep failed: %s", error)
                await self._timing.pause(LONGEST_REST)

    async def _rest(self, next_at: int | None) -> None:
        """Wait until `next_at`, by the store's time, or for the longest rest if that is shorter."""
        seconds = self._longest
        if next_at is not None and not self._is_far(next_at):
            now = (await self._store.read(StatsQuery())).now
            self._ahead_ms = now - 1000 * self._timing.monotonic()
            seconds = min(max((next_at - now) / 1000, SHORTEST_REST), self._longest)
        await self._timing.pause(seconds)

    def _is_far(self, next_at: int) -> bool:
        """Return whether the longest rest certainly ends before `next_at`."""
        if self._ahead_ms is None:
            return False
        about = 1000 * self._timing.monotonic() + self._ahead_ms
        return next_at - about > 1000 * (self._longest + MARGIN)


def _longest_rest(sweepers: float) -> float:
    """Return the maximum seconds until the next sweep of one of this many sweepers.

    It is random for more than two of them.
    """
    # Each of n sweepers rests about n seconds, so a few need no more than the longest rest.
    if sweepers <= LONGEST_REST:
        return LONGEST_REST
    mean = min(sweepers, MOST_SHARING)
    # Random, so that sweepers which start together, or sweep at the same due time, drift apart.
    return min(expovariate(1 / mean), 2 * mean)


async def log_dead(store: Store, ids: tuple[str, ...]) -> None:
    """Log each job that became dead without a handler, which would have logged it."""
    if not ids:
        return
    try:
        jobs = (await store.read(JobsQuery(ids=ids[:DEAD_LOGGED]))).rows
    except StoreError as error:
        some = ", ".join(ids[:DEAD_LOGGED])
        _log.error("%d jobs dead ids=%s; reading them failed: %s", len(ids), some, error)
        return
    for job in jobs:
        error = job.error or job.reason
        fields = {"kind": job.kind, "id": job.id, "attempt": job.attempt, "error": error}
        _log.error("job dead kind=%(kind)s id=%(id)s attempt=%(attempt)d error=%(error)r", fields)
    if len(ids) > len(jobs):
        _log.error("%d more jobs dead, not listed", len(ids) - len(jobs))


AHEAD_MS = 20 * 60_000
"""How far ahead fires are created: several rounds more than the 15 minutes that are promised."""
ROUND_EVERY = 30.0
"""Seconds between two rounds."""
AT_ONCE = 100
"""Maximum number of entries whose fires are created at once, so that a store can commit them
together."""
MOST_AHEAD = 10_000
"""Maximum number of fires of an entry that are created ahead in one round."""


class TimetableChore:
    """Creates the fires of each entry ahead of time. Any number of them may run at once."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing

    async def run(self) -> None:
        """Create fires until cancelled."""
        while True:
            await self.create_fires_or_warn()
            await self._timing.pause(ROUND_EVERY)

    async def create_fires_or_warn(self, name: str | None = None) -> None:
        """Call `create_fires`; if the store is unavailable, only warn: the next round repeats."""
        try:
            await self.create_fires(name)
        except PASSING as error:
            _log.warning("timetable fires not created: %s", error)

    async def create_fires(self, name: str | None = None) -> int:
        """Create the missing fires of all enabled entries, or of one, and return their number.

        An entry whose job the store refuses is logged.

        A request that declares or enables an entry calls this, because the entry would have no
        fires until the next round of a worker or server.
        """
        query = TimetableQuery(names=None if name is None else (name,))
        entries = [entry for entry in await self._store.read(query) if entry.spec.enabled]
        if not entries:
            return 0
        now = (await self._store.read(StatsQuery())).now
        created = 0
        for page in batches(entries, AT_ONCE):
            work = (self._create_entry_fires(entry, now) for entry in page)
            ends = await asyncio.gather(*work, return_exceptions=True)
            for entry, end in zip(page, ends, strict=True):
                if isinstance(end, CallerError):
                    # Its job is refused, for example at a gate: the other entries must fire, and
                    # the worker must continue.
                    _log.error("timetable entry %r cannot fire: %s", entry.spec.name, end)
                elif isinstance(end, BaseException):
                    raise end
                else:
                    created += end
        return created

    async def _create_entry_fires(self, entry: EntryView, now: int) -> int:
        moments, ahead_until = due_fires(entry, now)
        created = 0
        for start in range(0, len(moments), MAX_BATCH):
            page = moments[start : start + MAX_BATCH]
            last = start + MAX_BATCH >= len(moments)
            reply = await self._store.fire(
                FireRequest(
                    entry=entry.spec.name,
                    revision=entry.revision,
                    moments=page,
                    ahead_until=ahead_until if last else page[-1],
                )
            )
            created += len(reply.fired)
            if not reply.current:
                break
        return created


def due_fires(entry: EntryView, now: int) -> tuple[tuple[int, ...], int]:
    """Return the fires of an entry that the store should have, but has not.

    Returns:
        Their times in order (missed ones that its policy makes up for, all from then on and within
        the next 20 minutes, and the next one after these), and the time until which all fires are
        then known.
    """
    spec = entry.spec
    known = entry.ahead_until if entry.ahead_until is not None else entry.first_seen_at
    until = now + AHEAD_MS
    if known > until:
        return (), known
    late_at = now - MISSED_AFTER_MS
    late: list[int] = []
    if known < late_at:
        cap = 1 if spec.misfire is MisfirePolicy.ONCE else spec.misfire_cap
        late = missed(latest_fires(spec.schedule, known, late_at, cap), spec.misfire, cap)
    ahead = fires_between(spec.schedule, max(known, late_at), until, MOST_AHEAD)
    if len(ahead) < MOST_AHEAD:
        ahead += next_fires(spec.schedule, until, 1)
    return (*late, *ahead), ahead[-1] if ahead else until
