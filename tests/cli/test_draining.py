from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from headway.cli.progress import silent
from headway.cli.serving import Drain, count_left, wait_until_drained
from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import HandedOver, SettleRequest, Succeeded
from headway.lab.virtual_time import VirtualLoop, VirtualTiming, run_virtually
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from tests.cli.seeding import new_job

WORKER = "w"


async def start(store: MemoryStore, n: int) -> list[tuple[str, int]]:
    request = ClaimRequest(worker=WORKER, request=1, lanes=(("main", 1),), n=n, free=n)
    return [(job.id, job.run) for job in (await store.claim(request)).jobs]


async def test_every_nonfinal_state_counts():
    clock = FakeClock()
    store = MemoryStore(clock)
    later = clock() + 60_000
    await store.enqueue([new_job() for _ in range(4)] + [new_job(due_at=later)])
    (one, first), (two, second), _ = await start(store, 3)
    outcomes = (Succeeded(one, first), HandedOver(two, second, key="k"))
    await store.settle(SettleRequest(worker=WORKER, outcomes=outcomes))
    assert await count_left(store, ["main"], Drain.ALL) == (
        {"running": 1, "awaiting": 1, "waiting": 1, "scheduled": 1},
        1,
    )
    assert await count_left(store, ["main"], Drain.DUE) == (
        {"running": 1, "awaiting": 1, "waiting": 1},
        1,
    )
    assert await count_left(store, ["other"], Drain.ALL) == ({}, 0)


async def test_newly_due_jobs_count_before_they_are_claimed():
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.enqueue([new_job(due_at=clock() + 60_000)])
    assert await count_left(store, ["main"], Drain.DUE) == ({}, 0)
    clock.advance(60_000)
    assert await count_left(store, ["main"], Drain.DUE) == ({"waiting": 1}, 0)


async def test_meter_receives_the_progress_since_the_start():
    store = MemoryStore(FakeClock())
    told: list[tuple[float, float | None]] = []

    def meter(done: float, total: float | None = None) -> None:
        told.append((done, total))

    await wait_until_drained(store, ["main"], Drain.ALL, meter)
    assert told == [(0, 0)]


def test_draining_worker_logs_once_what_it_waits_for():

    async def drain(loop: VirtualLoop) -> None:
        store, timing = MemoryStore(loop.clock), VirtualTiming(loop)
        later = loop.clock() + 3_600_000
        await store.enqueue([new_job(due_at=later), new_job(), new_job()])
        drained = wait_until_drained(store, ["main"], Drain.ALL, silent, timing)
        waiting = asyncio.create_task(drained)
        await timing.pause(9.5)
        (run,) = await start(store, 1)
        await timing.pause(9.5)
        assert not logged
        await timing.pause(20)
        await store.settle(SettleRequest(worker=WORKER, outcomes=(Succeeded(*run),)))
        await timing.pause(20)
        waiting.cancel()

    with capture_logs() as logged:
        run_virtually(drain, 1_700_000_000_000)
    event = {"event": "worker draining", "log_level": "info"}
    assert logged == [
        event | {"left": 3, "scheduled": 1, "waiting": 1, "running": 1},
        event | {"left": 2, "scheduled": 1, "waiting": 1},
    ]
