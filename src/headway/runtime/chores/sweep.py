"""The sweep: brings about what time alone decides, such as the end of leases and deadlines."""

from __future__ import annotations

import logging

from headway.contract.store import Store
from headway.contract.views import JobsQuery, StatsQuery
from headway.core.errors import StoreError
from headway.core.job import TRAIL_KEPT_MS
from headway.runtime.persist import PASSING
from headway.runtime.timing import Timing

SWEEP_SIZE = 500
DEAD_LOGGED = 100
"""Jobs that one sweep made dead and that get a line each."""
LONGEST = 2.0
"""Seconds after which to look again: what others do may have made something due earlier."""
SHORTEST = 0.02
MARGIN = 1.0
"""By how many seconds the store's time may be ahead of what it was taken for."""

_log = logging.getLogger("headway.chores")


class Sweep:
    """Sweeps whenever something is due, in bounded steps."""

    def __init__(self, store: Store, timing: Timing, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> None:
        self._store = store
        self._keep_trail_ms = keep_trail_ms
        self._timing = timing
        self._ahead_ms: float | None = None

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            try:
                reply = await self._store.sweep(SWEEP_SIZE, keep_trail_ms=self._keep_trail_ms)
                await log_dead(self._store, reply.dead)
                if reply.again:
                    await self._timing.pause(0)
                else:
                    await self._rest(reply.next_at)
            except PASSING as error:
                _log.warning("sweep: %s", error)
                await self._timing.pause(LONGEST)

    async def _rest(self, next_at: int | None) -> None:
        """Waits for the moment, by the store's time, but not for longer than the longest rest."""
        seconds = LONGEST
        if next_at is not None and not self._is_far(next_at):
            now = (await self._store.read(StatsQuery())).now
            self._ahead_ms = now - 1000 * self._timing.monotonic()
            seconds = min(max((next_at - now) / 1000, SHORTEST), LONGEST)
        await self._timing.pause(seconds)

    def _is_far(self, next_at: int) -> bool:
        """Whether the moment comes after the longest rest for sure, without asking the store."""
        if self._ahead_ms is None:
            return False
        about = 1000 * self._timing.monotonic() + self._ahead_ms
        return next_at - about > 1000 * (LONGEST + MARGIN)


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
