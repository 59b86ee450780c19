"""What other processes do in these tests; each runs in an interpreter of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.contract.views import StatsQuery
from headway.core.job import NewJob, derived_id
from headway.stores.sqlite import SqliteOptions, SqliteStore
from headway.stores.sqlite.disk import WriteLock
from headway.stores.sqlite.ledger import SqliteLedger

SPAWN = multiprocessing.get_context("spawn")
LIMIT = 240.0


@contextmanager
def running(*processes: BaseProcess) -> Iterator[None]:
    """Starts processes, and leaves none behind."""
    for one in processes:
        one.start()
    try:
        yield
    finally:
        for one in processes:
            if one.is_alive():
                os.kill(one.pid or 0, signal.SIGCONT)
                one.kill()
            one.join(LIMIT)


def opened(path: str) -> SqliteStore:
    return SqliteStore(SqliteOptions(path=Path(path), synchronous="normal", reserve_bytes=0))


def produce(path: str, name: str, batches: int, size: int, go: Event) -> None:
    """Enqueues batches as fast as it can."""

    async def work() -> None:
        store = opened(path)
        go.wait(LIMIT)
        for batch in range(batches):
            await store.enqueue(
                [NewJob(id=derived_id(name, batch, n), kind="noop") for n in range(size)]
            )
        await store.close()

    asyncio.run(work())


def consume(path: str, worker: str, total: int, took: Queue[Any], go: Event) -> None:
    """Claims and settles until so many jobs are done by all; tells what it took itself."""

    async def work() -> None:
        store = opened(path)
        go.wait(LIMIT)
        request, done, mine = 0, 0, []
        while done < total:
            request += 1
            reply = await store.claim(
                ClaimRequest(worker=worker, request=request, lanes=(("main", 1),), n=50, free=50)
            )
            runs = [(one.id, one.run) for one in reply.jobs]
            mine += runs
            if runs:
                outcomes = tuple(Succeeded(one, run) for one, run in runs)
                await store.settle(SettleRequest(worker=worker, outcomes=outcomes))
            else:
                done = (await store.read(StatsQuery())).counts.get("succeeded", 0)
                await store.wait(["main"], reply.now + 200, reply.seen)
        took.put((worker, mine))
        await store.close()

    asyncio.run(work())


def stop_inside(path: str, inside: Event) -> None:
    """Takes the write lock, says so, and is never seen again."""
    write_lock = WriteLock(Path(path))
    write_lock.acquire()
    inside.set()
    signal.pause()


def die_inside(path: str, inside: Event) -> None:
    """Writes half of a step, says so, and waits to be killed with its transaction open."""

    async def work() -> None:
        store = opened(path)

        def half(ledger: SqliteLedger) -> None:
            ledger.session.db.execute("DELETE FROM job")
            ledger.session.db.execute("PRAGMA cache_spill(1)")
            inside.set()
            signal.pause()

        await store._decide(half)

    asyncio.run(work())


def enqueue_one(path: str, number: int) -> None:
    """Enqueues one job and ends."""

    async def work() -> None:
        store = opened(path)
        await store.enqueue([NewJob(id=derived_id("one", number), kind="noop")])
        await store.close()

    asyncio.run(work())


def create_at_once(path: str, told: Queue[Any], go: Event) -> None:
    """Opens a file that is not there, in the same moment as others."""
    go.wait(LIMIT)

    async def work() -> None:
        store = opened(path)
        reply = await store.enqueue([NewJob(id=derived_id(os.getpid()), kind="noop")])
        told.put(reply[0].created)
        await store.close()

    asyncio.run(work())
