"""Waiters that sleep until something in their lanes may be claimable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Lock

from headway.contract.store import Clock


class Waiter:
    """One `wait` in one event loop."""

    def __init__(self, lanes: Sequence[str], until_at: int | None) -> None:
        self.lanes = frozenset(lanes)
        self.until_at = until_at
        self.loop = asyncio.get_running_loop()
        self.poked = asyncio.Event()


class Wakes:
    """Wakes waiters, and records recent wakes, so that none is missed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._count = 0
        self._last: dict[str, int] = {}
        self._last_any = 0
        # In order of arrival, so that a simulation is reproducible.
        self._waiters: dict[Waiter, None] = {}

    @property
    def seen(self) -> int:
        """The number of wakes so far."""
        return self._count

    def wake(self, lane: str | None, at: int | None) -> None:
        """Wake the waiters of a lane, or of all lanes, now or at a moment."""
        with self._lock:
            self._count += 1
            if lane is None:
                self._last_any = self._count
            else:
                self._last[lane] = self._count
            waiters = [one for one in self._waiters if lane is None or lane in one.lanes]
            for one in waiters:
                if at is not None:
                    one.until_at = at if one.until_at is None else min(at, one.until_at)
                else:
                    one.until_at = 0
        for one in waiters:
            try:
                one.loop.call_soon_threadsafe(one.poked.set)
            except RuntimeError:
                # Its loop is closed.
                self._waiters.pop(one, None)

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """Sleep; see `Store.wait`."""
        waiter = Waiter(lanes, until_at)
        with self._lock:
            if self._last_any > seen or any(self._last.get(lane, 0) > seen for lane in lanes):
                return
            self._waiters[waiter] = None
        try:
            while True:
                pause = self._pause(waiter)
                if pause is not None and pause <= 0:
                    return
                waiter.poked.clear()
                try:
                    async with asyncio.timeout(pause):
                        await waiter.poked.wait()
                except TimeoutError:
                    return
        finally:
            with self._lock:
                self._waiters.pop(waiter, None)

    def _pause(self, waiter: Waiter) -> float | None:
        if waiter.until_at is None:
            return None
        return (waiter.until_at - self._clock()) / 1000
