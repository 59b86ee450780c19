"""Jobs with gates are claimed only for free handlers, and start in time or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import headway as hw
from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.views import AuditQuery
from headway.runtime.timing import pause
from headway.stores.memory import MemoryStore
from headway.testing.faulty import StoreProxy
from tests.runtime.observed_store import ObservedStore, soon, working


async def test_gated_jobs_are_never_prefetched(app: hw.App, store: ObservedStore) -> None:
    most: list[int] = []
    line = hw.Slots("line", 100)

    @app.job(gates=[line])
    async def gated(job: hw.Job) -> None:
        current: Any = worker._current
        most.append(current.queue.busy + len(current.queue.gated))
        await pause(0)

    @app.job()
    async def plain(job: hw.Job) -> None: ...

    jobs = [(gated if n % 3 else plain).make(priority=n) for n in range(400)]
    sent = await app.send_many_async(jobs)
    async with working(app, concurrency=4, chores=False) as worker:
        await store.until(lambda: _ended(worker, 400))
    for request, reply in store.asked("claim"):
        assert sum(job.gated for job in reply.jobs) <= request.free <= 4
    assert max(most) <= 4
    views = [await store.job(one.id) for one in sent]
    assert {view.state for view in views} == {"succeeded"}
    assert {view.run for view in views} == {1}
    assert (await store.read(AuditQuery())).differences == ()


async def _ended(worker: hw.Worker, n: int) -> bool:
    return worker.ended >= n


async def test_gated_job_not_started_in_time_is_handed_back(
    app: hw.App, store: ObservedStore
) -> None:
    timing = Late()

    @app.job(gates=[hw.Slots("line", 2)], start_within="1s")
    async def call(job: hw.Job) -> int:
        if job.priority == 1:
            timing.late = 1.5  # as if this handler had blocked the loop
        return job.run

    first = await app.send_async(call, priority=1)
    second = await app.send_async(call, priority=2)
    async with working(app, timing=timing, heartbeat="task", chores=False):
        views = [await store.ends(first.id), await store.ends(second.id)]
    assert [run.outcome for run in views[0].runs] == ["succeeded"]
    assert [run.outcome for run in views[1].runs] == ["released", "succeeded"]
    assert (views[1].result, views[1].attempt) == (b"2", 1)


async def test_gated_job_of_a_claim_that_took_too_long_is_handed_back() -> None:
    timing = Late()

    class Slow(StoreProxy):
        async def claim(self, request: ClaimRequest) -> ClaimReply:
            reply = await self.inner.claim(request)
            timing.late = 1.5 if reply.jobs else timing.late
            return reply

    store = ObservedStore(Slow(MemoryStore()))
    app = hw.App(store=store)

    @app.job(gates=[hw.Slots("line", 1)], start_within="1s")
    async def call() -> None: ...

    sent = await app.send_async(call)
    async with working(app, timing=timing, heartbeat="task", chores=False):
        view = await store.ends(sent.id)
    assert [run.outcome for run in view.runs] == ["released", "succeeded"]


class Late(hw.Timing):
    """Real time plus an offset."""

    late = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.late


async def test_gated_jobs_get_handlers_beside_a_flood_of_others(
    app: hw.App, store: ObservedStore
) -> None:
    started = asyncio.Event()
    left = [True]

    @app.job()
    async def flood(job: hw.Job) -> None:
        if left[0]:
            job.then(flood.make())
        await pause(0)

    @app.job(gates=[hw.Slots("line", 1)], priority=0)
    async def gated(job: hw.Job) -> None:
        left[0] = False
        started.set()

    await app.send_many_async(flood.make() for _ in range(50))
    async with working(app, concurrency=2) as worker:
        await store.until(lambda: _ended(worker, 100))
        await app.send_async(gated)
        await soon(started)


async def test_released_permit_starts_the_next_job_of_a_lock(
    app: hw.App, store: ObservedStore
) -> None:
    running: list[str] = []

    @app.job(gates=[hw.Slots("repo:{name}", 1)])
    async def build(job: hw.Job, name: str) -> None:
        assert name not in running
        running.append(name)
        await pause(0)
        running.remove(name)

    sent = await app.send_many_async(build.make(name=f"r{n % 3}") for n in range(30))
    async with working(app, concurrency=8):
        for one in sent:
            await store.ends(one.id)
    assert (await store.read(AuditQuery())).differences == ()
