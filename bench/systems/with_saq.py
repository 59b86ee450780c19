"""saq, on Redis and on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from saq import Job, Queue, Worker
from saq.queue.postgres import PostgresQueue
from saq.queue.redis import RedisQueue

from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler
from headway.runtime import event_loop

TOGETHER = 100


class SaqProducer(Producer):
    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    async def one(self, number: int) -> None:
        await self.queue.enqueue(_job(number))

    async def many(self, numbers: Sequence[int]) -> None:
        await self._each([_job(number) for number in numbers])

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        await self._each([_job(number, scheduled=due_at // 1000) for number in numbers])

    async def _each(self, jobs: Sequence[Job]) -> None:
        # It cannot enqueue in bulk: use several connections instead.
        for at in range(0, len(jobs), TOGETHER):
            await asyncio.gather(*map(self.queue.enqueue, jobs[at : at + TOGETHER]))


def _job(number: int, scheduled: int = 0) -> Job:
    return Job("noop", kwargs={"number": number}, ttl=-1, scheduled=scheduled)


class SaqOnRedis(Peer):
    name = "saq"
    slow = True
    jobs = 25
    setting = "25 jobs at once, results not kept"
    bulk = True

    def open(self, url: str) -> Queue:
        return RedisQueue.from_url(url)

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        queue = self.open(url)
        await queue.connect()
        yield SaqProducer(queue)
        await queue.disconnect()

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        async def noop(context: object, *, number: int) -> None:
            del context
            handler(number)

        async def work() -> None:
            queue = self.open(url)
            await queue.connect()
            control.start()
            await Worker(queue, functions=[("noop", noop)], concurrency=self.jobs).start()

        event_loop.run(work())


class SaqOnPostgres(SaqOnRedis):
    store = "postgres"
    jobs = 20
    setting = "20 jobs at once, results not kept"

    def open(self, url: str) -> Queue:
        return PostgresQueue.from_url(url)
