"""Workers for the duration of a block, and waits of tests, each with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import headway as hw
from headway.contract.views import JobQuery
from headway.core.state import FINAL, State
from headway.runtime.timing import REAL
from tests.server.rig import Rig

LIMIT_S = 240.0


class Ended:
    """What handlers have done."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._changed = asyncio.Event()

    def add(self, one: object) -> None:
        self.all.append(one)
        self._changed.set()

    async def until(self, count: int) -> None:
        """Wait until handlers have done this much."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.all) < count:
                self._changed.clear()
                await self._changed.wait()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Poll for something that no event reports."""
    async with asyncio.timeout(LIMIT_S):
        while not await holds():
            await REAL.pause(0.01)


async def final(rig: Rig, job: str) -> State:
    """Return the state in which a job ends."""
    states: list[State] = []

    async def ended() -> bool:
        view = await rig.store.read(JobQuery(id=job))
        assert view is not None
        states.append(view.state)
        return view.state in FINAL

    await until(ended)
    return states[-1]


@asynccontextmanager
async def at_work(
    url: str, app: hw.App, *, token: str | None = None, client: hw.Client | None = None, **more: Any
) -> AsyncIterator[hw.Client]:
    """Run a worker on a server until the block ends; yield its client."""
    own = client or hw.Client(url, token)
    worker = own.worker(app, **more)
    working = asyncio.create_task(worker.run())
    try:
        yield own
    finally:
        worker.stop()
        async with asyncio.timeout(LIMIT_S):
            await working
        if client is None:
            await own.close_async()
