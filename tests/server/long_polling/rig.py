"""Helpers of the long-polling tests: a store whose calls are counted, and waits for states."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from headway.contract.store import Store
from headway.core.job import NewJob, derived_id
from headway.runtime.timing import REAL
from headway.server.long_polling.claiming import LaneSelection, LongPoll, PollReply
from headway.server.long_polling.registry import LongPollRegistry


class Counted:
    """A store that counts started and ongoing calls by name."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: Counter[str] = Counter()
        self.open: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.store, name)
        if name not in {"enqueue", "claim", "settle", "beat", "wait", "read"}:
            return real

        async def counted(*args: Any) -> Any:
            self.calls[name] += 1
            self.open[name] += 1
            try:
                return await real(*args)
            finally:
                self.open[name] -= 1

        return counted


async def until(what: Callable[[], object], limit: float = 20.0) -> None:
    """Let other tasks run until a condition holds."""
    async with asyncio.timeout(limit):
        while not what():
            await REAL.pause(0.001)


def job(number: int, lane: str = "calls", **fields: Any) -> NewJob:
    return NewJob(id=derived_id("pulling", lane, number), kind="dial", lane=lane, **fields)


def pull(worker: str, *lanes: str, **fields: Any) -> LongPoll:
    wanted = LaneSelection(lanes=tuple((lane, 1) for lane in lanes or ("calls",)))
    return LongPoll(worker=worker, **{"wanted": wanted, **fields})


class Pullers:
    """Long polls, each from its own worker, and their replies in the order received."""

    def __init__(self, registry: LongPollRegistry) -> None:
        self.long_polls = registry
        self.tasks: list[asyncio.Task[None]] = []
        self.got: list[tuple[str, PollReply]] = []

    async def wait(self, count: int, *lanes: str, seconds: float = 50, **fields: Any) -> None:
        """Start this many more polls; return once all of them wait."""
        before = len(self.long_polls)
        for number in range(count):
            worker = f"w{len(self.tasks):04}"
            one = pull(worker, *lanes, **fields)
            self.tasks.append(asyncio.create_task(self._one(worker, one, seconds)))
            if number == 0:
                # The first one claims; the others wait behind it.
                await until(lambda: len(self.long_polls) >= before + 1)
        await until(lambda: len(self.long_polls) == before + count)

    async def _one(self, worker: str, one: LongPoll, seconds: float) -> None:
        self.got.append((worker, await self.long_polls.pull(one, seconds)))

    @property
    def workers(self) -> list[str]:
        return [worker for worker, _ in self.got]

    @property
    def jobs(self) -> list[str]:
        return [job.id for _, pulled in self.got for job in pulled.jobs]

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
