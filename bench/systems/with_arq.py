"""arq on Redis. It polls; the interval is shorter than its default of half a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from arq import create_pool, func
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker

from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler
from headway.runtime import event_loop


class ArqProducer(Producer):
    def __init__(self, pool: ArqRedis) -> None:
        self.pool = pool

    async def one(self, number: int) -> None:
        await self.pool.enqueue_job("noop", number)

    async def many(self, numbers: Sequence[int]) -> None:
        # It cannot enqueue in bulk: use several connections instead.
        for at in range(0, len(numbers), 100):
            await asyncio.gather(*map(self.one, numbers[at : at + 100]))

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        moment = datetime.fromtimestamp(due_at / 1000, UTC)
        for number in numbers:
            await self.pool.enqueue_job("noop", number, _defer_until=moment)


class ArqOnRedis(Peer):
    name = "arq"
    slow = True
    jobs = 200
    poll_s = 0.01
    setting = f"{jobs} jobs at once, polls every {poll_s * 1000:.0f} ms, results not kept"
    bulk = True

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        pool = await create_pool(RedisSettings.from_dsn(url))
        yield ArqProducer(pool)
        await pool.aclose()

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        async def noop(context: dict[str, object], number: int) -> None:
            del context
            handler(number)

        async def work() -> None:
            worker = Worker(
                functions=[func(noop, name="noop")],
                redis_settings=RedisSettings.from_dsn(url),
                max_jobs=self.jobs,
                queue_read_limit=5 * self.jobs,
                poll_delay=self.poll_s,
                keep_result=0,
                handle_signals=False,
            )
            control.start()
            await worker.async_run()

        event_loop.run(work())
