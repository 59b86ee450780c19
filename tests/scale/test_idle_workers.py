"""On PostgreSQL a job costs a few trips, however many workers wait for one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count

import pytest

from headway.contract.outcomes import Succeeded
from headway.runtime.timing import pause
from headway.testing.conformance.worker import PlayedWorker
from tests.scale.trips import LANE, Site, counting, site
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database

IDLE = 24
MOMENTS = count(4_000_000_000_000, -1)
LIMIT = 120


async def serve(made: Site, name: str, done: asyncio.Queue[str]) -> None:
    worker = PlayedWorker(made.store, name)
    while True:
        reply = await worker.ask(4, LANE)
        if reply.jobs:
            await worker.settle(*(Succeeded(job.id, job.run) for job in reply.jobs))
            for job in reply.jobs:
                done.put_nowait(job.id)
        elif not reply.again:
            await made.store.wait([LANE], reply.next_at, reply.seen)


def sleeps(made: Site, moment: int) -> bool:
    wakes = made.store._wakes
    heard = any(waiter.until_at == moment for waiter in wakes._waiters)
    return heard and wakes._listening.listens_for([LANE])


async def rest(sender: Site, idle: list[Site]) -> None:
    """Wait until all sleep: a moment to come reaches those who do, after what was told before."""
    async with asyncio.timeout(LIMIT):
        while True:
            moment = next(MOMENTS)
            sender.store._wakes.announce([(LANE, moment)])
            for _ in range(20):
                await pause(0.01)
                if all(sleeps(one, moment) for one in idle):
                    return


@pytest.mark.slow
async def test_one_job_costs_few_trips_beside_many_idle_workers(
    fast_postgres_server: PostgresServer | GivenPostgres,
) -> None:
    done: asyncio.Queue[str] = asyncio.Queue()
    with fresh_database(fast_postgres_server.url) as url:
        async with AsyncExitStack() as stack:
            sender = await stack.enter_async_context(site(url))
            idle = [await stack.enter_async_context(site(url)) for _ in range(IDLE)]
            tasks = [asyncio.ensure_future(serve(one, f"w{n}", done)) for n, one in enumerate(idle)]
            # Each process learns names and habits from its first claims.
            for _ in range(40):
                await sender.add([sender.new() for _ in range(3)])
                await rest(sender, idle)
            counts: list[int] = []
            for _ in range(12):
                await rest(sender, idle)
                with counting() as trips:
                    await sender.add([sender.new()])
                    async with asyncio.timeout(LIMIT):
                        await done.get()
                    await rest(sender, idle)
                counts.append(trips.n)
            for task in tasks:
                task.cancel()
    # Enqueue, claims of two that were woken, settle, one more claim; now and then a look of all.
    assert sorted(counts)[len(counts) // 2] < 8, counts
