"""The runtime's clocks and pauses, and calls retried while a store is unavailable."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headway.core.errors import OutcomeUnknown, StoreError, StoreFull, StoreUnavailable


class Timing:
    """Real time. The simulator passes a subclass that runs the same worker in virtual time."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back; only differences are meaningful."""
        return time.monotonic()

    def wall_at(self) -> int:
        """Return this machine's time, in ms UTC; where possible, use the store's time instead."""
        return time.time_ns() // 1_000_000

    def wall_ns(self) -> int:
        """Return this machine's time in ns since 1970, for comparison with other programs."""
        return time.time_ns()

    async def pause(self, seconds: float) -> None:
        """Sleep; 0 lets the other tasks run once."""
        await asyncio.sleep(seconds)

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        """Return a context manager that raises TimeoutError after this time; None for no limit."""
        return asyncio.timeout(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event for at most this long, and return whether it is set."""
        try:
            async with self.limit(seconds):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True


REAL = Timing()


async def pause(seconds: float) -> None:
    """Sleep in real time; 0 lets the other tasks run once."""
    await REAL.pause(seconds)


Reply = TypeVar("Reply")

PASSING = (StoreUnavailable, OutcomeUnknown, StoreFull)
"""Errors of a store that may be temporary, so that the call is worth retrying."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0

_log = logging.getLogger("headway.worker")


async def persist(
    timing: Timing,
    what: str,
    call: Callable[[], Awaitable[Reply]],
    *,
    until: Callable[[StoreError], bool] = lambda _: False,
) -> Reply:
    """Repeat a call, with backoff, until the store answers.

    Args:
        what: name of the call, for the log.
        call: makes the same call each time.
        until: called with the error of each failure; returns whether to give up.

    Raises:
        StoreError: the error is permanent, or `until` returned True; what was written is unknown.
    """
    seconds = FIRST_PAUSE
    while True:
        try:
            return await call()
        except PASSING as error:
            if until(error):
                raise
            _log.warning("%s: %s; again in %g s", what, error, seconds)
        await timing.pause(seconds)
        seconds = min(seconds * 2, LONGEST_PAUSE)
