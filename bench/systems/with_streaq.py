"""streaq on Redis streams. It requires the functions of Redis 7."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from streaq import Worker

from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler
from headway.runtime import event_loop


class StreaqProducer(Producer):
    def __init__(self, worker: Worker, noop: Callable[..., object]) -> None:
        self.worker = worker
        self.noop = noop

    async def one(self, number: int) -> None:
        await self.noop.enqueue(number)  # type: ignore[attr-defined]  # made by the decorator

    async def many(self, numbers: Sequence[int]) -> None:
        await self.worker.enqueue_many([self.noop.enqueue(number) for number in numbers])  # type: ignore[attr-defined]  # as above

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        moment = datetime.fromtimestamp(due_at / 1000, UTC)
        await self.worker.enqueue_many(
            [self.noop.enqueue(number).start(schedule=moment) for number in numbers]  # type: ignore[attr-defined]  # as above
        )


class StreaqOnRedis(Peer):
    name = "streaq"
    slow = True
    tasks = 64
    prefetch = 256
    setting = f"{tasks} tasks at once, prefetch {prefetch}, results not kept"
    bulk = True
    least_redis = (7,)

    def open(self, url: str, handler: Handler) -> tuple[Worker, Callable[..., object]]:
        worker = Worker(
            redis_url=url, concurrency=self.tasks, prefetch=self.prefetch, handle_signals=False
        )

        @worker.task(name="noop", ttl=0)
        async def noop(number: int) -> None:
            handler(number)

        return worker, noop

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        worker, noop = self.open(url, int)
        async with worker:
            yield StreaqProducer(worker, noop)

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        async def work() -> None:
            worker, _ = self.open(url, handler)
            control.start()
            await worker.run_async()

        event_loop.run(work())
