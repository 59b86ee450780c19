"""The runtime's clocks and pauses, and calls repeated while a store is away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headway.core.errors import OutcomeUnknown, StoreFull, StoreUnavailable


class Timing:
    """Real time. The simulator passes one of its own, and runs the same worker on virtual time."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        return time.monotonic()

    def wall_at(self) -> int:
        """The caller's own time, in ms UTC; the store's time decides wherever it can."""
        return time.time_ns() // 1_000_000

    def wall_ns(self) -> int:
        """The same in ns, for what is compared with other programs' records."""
        return time.time_ns()

    async def pause(self, seconds: float) -> None:
        """Let others run for so long; 0 lets each of them run once."""
        await asyncio.sleep(seconds)

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        """A block that ends with TimeoutError after so many seconds; None for no limit."""
        return asyncio.timeout(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event."""
        try:
            async with self.limit(seconds):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True


REAL = Timing()


async def pause(seconds: float) -> None:
    """Let others run for so long, in real time."""
    await REAL.pause(seconds)


Reply = TypeVar("Reply")

PASSING = (StoreUnavailable, OutcomeUnknown, StoreFull)
"""Errors of a store that may heal by themselves."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0

_log = logging.getLogger("headway.worker")


async def persist(
    timing: Timing,
    what: str,
    call: Callable[[], Awaitable[Reply]],
    *,
    until: Callable[[], bool] = lambda: False,
) -> Reply:
    """Call until the store answers.

    Args:
        call: makes the same call each time.
        until: whether to give up after the failure at hand.

    Raises:
        StoreError: it does not heal, or `until` said to give up; what was written is unknown.
    """
    seconds = FIRST_PAUSE
    while True:
        try:
            return await call()
        except PASSING as error:
            if until():
                raise
            _log.warning("%s: %s; again in %g s", what, error, seconds)
        await timing.pause(seconds)
        seconds = min(seconds * 2, LONGEST_PAUSE)
