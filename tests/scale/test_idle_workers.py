"""On PostgreSQL a job costs a few claims, however many workers are idle."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count

import pytest

from headway.contract.outcomes import Succeeded
from headway.runtime.timing import pause
from headway.stores.postgres import listening
from headway.testing.conformance.worker import PlayedWorker
from tests.scale.trips import LANE, Site, site
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database

IDLE = 24
MOMENTS = count(4_000_000_000_000, -1)
LIMIT = 120


@pytest.fixture(autouse=True)
def slow_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sure that workers are woken only by notifications, however slow the machine is."""
    monkeypatch.setattr(listening, "CHECK_EVERY", 3600.0)
    monkeypatch.setattr(listening, "LINGER_IN_LANE", 3600.0)


async def serve(made: Site, name: str, claims: list[str], done: asyncio.Queue[str]) -> None:
    worker = PlayedWorker(made.store, name)
    while True:
        claims.append(name)
        reply = await worker.ask(4, LANE)
        if reply.jobs:
            await worker.settle(*(Succeeded(job.id, job.run) for job in reply.jobs))
            for job in reply.jobs:
                done.put_nowait(job.id)
        elif not reply.again:
            await made.store.wait([LANE], reply.next_at, reply.seen)


def sleeps(made: Site, moment: int) -> bool:
    wakes = made.store._wakes
    waits = any(waiter.until_at == moment for waiter in wakes._waiters)
    return waits and wakes._listening.listens_for([LANE])


async def rest(sender: Site, idle: list[Site]) -> None:
    """Wait until all sleep: an announced time reaches them after all earlier notifications."""
    async with asyncio.timeout(LIMIT):
        while True:
            moment = next(MOMENTS)
            sender.store._wakes.announce([(LANE, moment)])
            for _ in range(20):
                await pause(0.01)
                if all(sleeps(one, moment) for one in idle):
                    return


async def test_one_job_is_claimed_by_few_of_many_idle_workers(
    fast_postgres_server: PostgresServer | GivenPostgres,
) -> None:
    claims, done = list[str](), asyncio.Queue[str]()
    with fresh_database(fast_postgres_server.url) as url:
        async with AsyncExitStack() as stack:
            sender = await stack.enter_async_context(site(url))
            idle = [await stack.enter_async_context(site(url)) for _ in range(IDLE)]
            tasks = [
                asyncio.ensure_future(serve(one, f"w{n}", claims, done))
                for n, one in enumerate(idle)
            ]
            for _ in range(8):
                await rest(sender, idle)
                claims.clear()
                await sender.add([sender.new()])
                async with asyncio.timeout(LIMIT):
                    await done.get()
                await rest(sender, idle)
                # Two workers are woken, and one of them claims once more after its job.
                assert len(claims) == 3
            for task in tasks:
                task.cancel()
