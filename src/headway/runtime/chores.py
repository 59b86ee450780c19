"""Chores: sweeps bring about what time alone decides, and fires of the timetable are laid ahead."""

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
from headway.core.errors import StoreError
from headway.core.job import MAX_BATCH, TRAIL_KEPT_MS
from headway.core.timetable.fires import (
    MisfirePolicy,
    fires_between,
    latest_fires,
    missed,
    next_fires,
)
from headway.runtime.timing import PASSING, Timing

SWEEP_SIZE = 500
DEAD_LOGGED = 100
"""Jobs that one sweep made dead and that get a line each."""
LONGEST = 2.0
"""Seconds after which to look again: what others do may have made something due earlier."""
MOST_SHARING = 8
"""Of up to so many sweepers, each looks about once in as many seconds; of more, no less often."""
SHORTEST = 0.02
MARGIN = 1.0
"""By how many seconds the store's time may be ahead of what it was taken for."""

_log = logging.getLogger("headway.chores")


@dataclass(slots=True)
class _Line:
    """The sweepers of one event loop, and the lock that the one holds that sweeps."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    size: int = 0


class Sweepers:
    """The workers of one app, of which one sweeps in each event loop; the others stand by."""

    def __init__(self) -> None:
        """Begin without any."""
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[_Line]:
        """Stand by until it is the caller's turn to sweep, which lasts until it ends."""
        line = self._lines.setdefault(asyncio.get_running_loop(), _Line())
        line.size += 1
        try:
            async with line.lock:
                yield line
        finally:
            line.size -= 1


class Sweep:
    """Sweeps whenever something is due, in bounded steps."""

    def __init__(
        self,
        store: Store,
        timing: Timing,
        *,
        keep_trail_ms: int = TRAIL_KEPT_MS,
        sweepers: Sweepers | None = None,
    ) -> None:
        """Sweep nothing yet.

        Args:
            keep_trail_ms: lines of the trail that are older are removed.
            sweepers: the workers that it shares the sweeps with, if all workers of the store
                sweep: then each process rests longer, so that idle workers cost little. A server
                does not count on it: workers behind it do not sweep.
        """
        self._store = store
        self._keep_trail_ms = keep_trail_ms
        self._timing = timing
        self._sweepers = sweepers
        self._longest = LONGEST
        self._ahead_ms: float | None = None

    async def run(self) -> None:
        """Sweep until it is cancelled."""
        if self._sweepers is None:
            await self._sweep(None)
        else:
            async with self._sweepers.turn() as line:
                await self._sweep(line)

    async def _sweep(self, line: _Line | None) -> None:
        while True:
            try:
                reply = await self._store.sweep(SWEEP_SIZE, keep_trail_ms=self._keep_trail_ms)
                await log_dead(self._store, reply.dead)
                if line is not None:
                    self._longest = _longest_rest(reply.workers / line.size)
                if reply.again:
                    await self._timing.pause(0)
                else:
                    await self._rest(reply.next_at)
            except PASSING as error:
                _log.warning("sweep: %s", error)
                await self._timing.pause(LONGEST)

    async def _rest(self, next_at: int | None) -> None:
        """Wait for the moment, by the store's time, but not for longer than the longest rest."""
        seconds = self._longest
        if next_at is not None and not self._is_far(next_at):
            now = (await self._store.read(StatsQuery())).now
            self._ahead_ms = now - 1000 * self._timing.monotonic()
            seconds = min(max((next_at - now) / 1000, SHORTEST), self._longest)
        await self._timing.pause(seconds)

    def _is_far(self, next_at: int) -> bool:
        """Return whether the moment is certainly later than the longest rest."""
        if self._ahead_ms is None:
            return False
        about = 1000 * self._timing.monotonic() + self._ahead_ms
        return next_at - about > 1000 * (self._longest + MARGIN)


def _longest_rest(sweepers: float) -> float:
    """Draw the seconds after which one of about so many sweepers looks again."""
    if sweepers <= LONGEST:
        return LONGEST
    mean = min(sweepers, MOST_SHARING)
    # Those that begin together, or meet at a moment that all know, must not go on together.
    return min(expovariate(1 / mean), 2 * mean)


async def log_dead(store: Store, ids: tuple[str, ...]) -> None:
    """Log a line for each, if any: no handler does it, for these jobs ended without one."""
    if not ids:
        return
    try:
        jobs = (await store.read(JobsQuery(ids=ids[:DEAD_LOGGED]))).rows
    except StoreError as error:
        some = ", ".join(ids[:DEAD_LOGGED])
        _log.error("%d jobs dead ids=%s; the store does not say why: %s", len(ids), some, error)
        return
    for job in jobs:
        error = job.error or job.reason
        said = {"kind": job.kind, "id": job.id, "attempt": job.attempt, "error": error}
        _log.error("job dead kind=%(kind)s id=%(id)s attempt=%(attempt)d error=%(error)r", said)
    if len(ids) > len(jobs):
        _log.error("dead without a line of their own: %d more jobs", len(ids) - len(jobs))


AHEAD_MS = 20 * 60_000
"""How far ahead fires are laid: more than the 15 minutes that are promised, by several rounds."""
EACH = 30.0
"""Seconds between two rounds."""
MOST_AHEAD = 10_000


class TimetableChore:
    """Lays the fires of each entry ahead. Any number of them may do it at once."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing

    async def run(self) -> None:
        """Lay fires until it is cancelled."""
        while True:
            await self.lay_or_warn()
            await self._timing.pause(EACH)

    async def lay_or_warn(self, name: str | None = None) -> None:
        """As `lay`; if the store cannot do it now, the next round does."""
        try:
            await self.lay(name)
        except PASSING as error:
            _log.warning("timetable: %s", error)

    async def lay(self, name: str | None = None) -> int:
        """Lay what is missing now, of all entries or of one.

        A request that declares an entry or switches it on lays its fires: it would have none until
        the next round of a worker or a server.
        """
        entries = [
            entry
            for entry in await self._store.read(TimetableQuery())
            if entry.spec.enabled and name in {None, entry.spec.name}
        ]
        if not entries:
            return 0
        now = (await self._store.read(StatsQuery())).now
        return sum([await self._lay(entry, now) for entry in entries])

    async def _lay(self, entry: EntryView, now: int) -> int:
        moments, ahead_until = due_fires(entry, now)
        laid = 0
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
            laid += len(reply.fired)
            if not reply.current:
                break
        return laid


def due_fires(entry: EntryView, now: int) -> tuple[tuple[int, ...], int]:
    """The fires of an entry that are not in the store and should be.

    Returns:
        The moments in order: those missed that its policy makes up for, all of the next minutes,
        and one beyond; and up to where all are known then.
    """
    spec = entry.spec
    known = entry.ahead_until if entry.ahead_until is not None else entry.first_seen_at
    until = now + AHEAD_MS
    if known > until:
        return (), known
    late: list[int] = []
    if known < now:
        cap = 1 if spec.misfire is MisfirePolicy.ONCE else spec.misfire_cap
        late = missed(latest_fires(spec.schedule, known, now, cap), spec.misfire, cap)
    ahead = fires_between(spec.schedule, max(known, now), until, MOST_AHEAD)
    if len(ahead) < MOST_AHEAD:
        ahead += next_fires(spec.schedule, until, 1)
    return (*late, *ahead), ahead[-1] if ahead else until
