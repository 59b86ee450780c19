"""The tasks of one simulated world: all that is under way in it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.stdlib.get_logger("headway.telephony.simulated")


class Tasks:
    """All that is under way in one world."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Lets something go on by itself; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def idle(self) -> None:
        """Returns when nothing is under way any more."""
        while self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """Ends all of them, and what they may begin meanwhile."""
        while self._running:
            for one in self._running:
                one.cancel()
            await asyncio.wait(self._running)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the simulated world has failed", exc_info=error)
