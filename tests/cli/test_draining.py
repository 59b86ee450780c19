from __future__ import annotations

from headway.cli.serving import Drain, count_left, wait_until_drained
from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import HandedOver, SettleRequest, Succeeded
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
    assert await count_left(store, ["main"], Drain.ALL) == (4, 1)
    assert await count_left(store, ["main"], Drain.DUE) == (3, 1)
    assert await count_left(store, ["other"], Drain.ALL) == (0, 0)


async def test_newly_due_jobs_count_before_they_are_claimed():
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.enqueue([new_job(due_at=clock() + 60_000)])
    assert await count_left(store, ["main"], Drain.DUE) == (0, 0)
    clock.advance(60_000)
    assert await count_left(store, ["main"], Drain.DUE) == (1, 0)


async def test_meter_receives_the_progress_since_the_start():
    store = MemoryStore(FakeClock())
    told: list[tuple[float, float | None]] = []

    def meter(done: float, total: float | None = None) -> None:
        told.append((done, total))

    await wait_until_drained(store, ["main"], Drain.ALL, meter)
    assert told == [(0, 0)]
