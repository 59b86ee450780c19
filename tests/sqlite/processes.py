"""Programs of the other processes in these tests; each runs in its own interpreter."""

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
    """Start processes, and make sure that none survives."""
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
    """Enqueue batches as fast as possible."""

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
    """Claim and settle until all processes together have done this many jobs; report its own."""

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
    """Take the write lock, report it, and never return."""
    write_lock = WriteLock(Path(path))
    write_lock.acquire()
    inside.set()
    signal.pause()


def die_inside(path: str, inside: Event) -> None:
    """Write half of a step, report it, and wait to be killed with the transaction open."""

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
    """Enqueue one job and exit."""

    async def work() -> None:
        store = opened(path)
        await store.enqueue([NewJob(id=derived_id("one", number), kind="noop")])
        await store.close()

    asyncio.run(work())


def create_at_once(path: str, told: Queue[Any], go: Event) -> None:
    """Open a file that does not exist, at the same time as other processes."""
    go.wait(LIMIT)

    async def work() -> None:
        store = opened(path)
        reply = await store.enqueue([NewJob(id=derived_id(os.getpid()), kind="noop")])
        told.put(reply[0].created)
        await store.close()

    asyncio.run(work())
