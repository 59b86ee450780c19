"""The pace of the simulated world: its time, which may go faster than real time, and its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from headway.runtime.timing import Timing


class Pace:
    """The pace of one world.

    Attributes:
        speed: how many times faster than that it goes.
    """

    def __init__(self, timing: Timing, speed: float) -> None:
        self.timing = timing
        self.speed = speed

    def now_at(self) -> int:
        """Return the current instant, in ms UTC; instants do not depend on the speed."""
        return self.timing.wall_at()

    def passed_ms(self) -> float:
        """The world's own time; only differences mean anything."""
        return self.timing.monotonic() * 1000 * self.speed

    async def pause(self, span_ms: float) -> None:
        """Wait for a span of the simulated time."""
        await self.timing.pause(span_ms / 1000 / self.speed)

    async def wait(self, event: asyncio.Event, span_ms: float) -> bool:
        """Wait for an event for at most so much of the world's time; whether it is set."""
        return await self.timing.wait(event, span_ms / 1000 / self.speed)


log = structlog.stdlib.get_logger("headway.telephony.simulated")


class Tasks:
    """All that is under way in one world."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something go on by itself; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def idle(self) -> None:
        """Return when nothing is under way any more."""
        while self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """End all of them, and what they may begin meanwhile."""
        while self._running:
            for one in self._running:
                one.cancel()
            await asyncio.wait(self._running)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the simulated world has failed", exc_info=error)
