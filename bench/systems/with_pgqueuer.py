"""pgqueuer on PostgreSQL, in batches, through asyncpg.

With psycopg, each of its queries may wait up to a second for the connection on which it also
listens, which would not be a fair comparison.
"""

# pyright: basic, reportMissingImports=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from time import time

import asyncpg
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler
from headway.runtime import event_loop


class PgQueuerProducer(Producer):
    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    async def one(self, number: int) -> None:
        await self.queries.enqueue("noop", b"%d" % number)

    async def many(self, numbers: Sequence[int]) -> None:
        count = len(numbers)
        bodies: list[bytes | None] = [b"%d" % number for number in numbers]
        await self.queries.enqueue(["noop"] * count, bodies, [0] * count)

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        # It takes a delay from the server's current time.
        wait: timedelta | None = timedelta(seconds=max(0.0, due_at / 1000 - time()))
        count = len(numbers)
        bodies: list[bytes | None] = [b"%d" % number for number in numbers]
        await self.queries.enqueue(["noop"] * count, bodies, [0] * count, [wait] * count)


class PgQueuerOnPostgres(Peer):
    name = "pgqueuer"
    store = "postgres"
    batch = 1_000
    setting = f"asyncpg, batches of {batch:,}"
    bulk = True
    waits = True

    async def prepare(self, url: str) -> None:
        async with _connected(url) as driver:
            await Queries(driver).install()

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        async with _connected(url) as driver:
            yield PgQueuerProducer(Queries(driver))

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        async def work() -> None:
            async with _connected(url) as driver:
                queuer = PgQueuer(driver)

                @queuer.entrypoint("noop")
                async def noop(job: Job) -> None:
                    if self.seconds:
                        await asyncio.sleep(self.seconds)
                    handler(int(job.payload or b""))

                control.start()
                if self.places:
                    # It requires room for at least two batches.
                    size, most = self.places // 2, self.places
                    await queuer.run(batch_size=size, max_concurrent_tasks=most)
                else:
                    await queuer.run(batch_size=self.batch)

        event_loop.run(work())


@asynccontextmanager
async def _connected(url: str) -> AsyncGenerator[AsyncpgDriver]:
    connection = await asyncpg.connect(url)
    try:
        async with AsyncpgDriver(connection) as driver:
            yield driver
    finally:
        await connection.close()
