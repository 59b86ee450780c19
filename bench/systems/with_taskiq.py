"""taskiq on Redis streams, acknowledged when done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler
from headway.runtime import event_loop


class TaskiqProducer(Producer):
    def __init__(self, noop: Callable[..., object]) -> None:
        self.noop = noop

    async def one(self, number: int) -> None:
        await self.noop.kiq(number)  # type: ignore[attr-defined]  # made by the decorator

    async def many(self, numbers: Sequence[int]) -> None:
        # It cannot enqueue in bulk: use several connections instead.
        for at in range(0, len(numbers), 100):
            await asyncio.gather(*map(self.one, numbers[at : at + 100]))


class TaskiqOnRedis(Peer):
    name = "taskiq"
    tasks = 200
    setting = f"streams, {tasks} tasks at once, no results"
    bulk = True
    # Due times are handled by its scheduler, another process.
    bursts = False

    def open(self, url: str, handler: Handler) -> tuple[RedisStreamBroker, Callable[..., object]]:
        # "0": the group must see messages that were sent before it was created.
        broker = RedisStreamBroker(url, consumer_id="0", xread_count=self.tasks)

        @broker.task(task_name="noop")
        async def noop(number: int) -> None:
            handler(number)

        return broker, noop

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        broker, noop = self.open(url, int)
        await broker.startup()
        yield TaskiqProducer(noop)
        await broker.shutdown()

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        async def work() -> None:
            broker, _ = self.open(url, handler)
            control.start()
            await run_receiver_task(
                broker,
                max_async_tasks=self.tasks,
                max_prefetch=self.tasks,
                validate_params=False,
                run_startup=True,
            )

        event_loop.run(work())
