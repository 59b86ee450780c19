"""Bugs in the engine that simulated days found; each fixed bug has a test."""

from __future__ import annotations

from headway.contract.claims import BeatRequest, Claimed, ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.views import JobQuery
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.jobs import JobFactory, use_of

RUNWAY = Rate("runway", 1, per="75s")


async def claimed(store: MemoryStore, request: int, n: int = 10):
    return await store.claim(
        ClaimRequest(worker="w", request=request, lanes=(("calls", 1),), n=n, free=n)
    )


async def queued(clock: FakeClock, spec: GateSpec, count: int) -> MemoryStore:
    store = MemoryStore(clock)
    await store.define(DefineRequest(items=(DeclareGate(spec=spec),), author="test"))
    jobs = JobFactory(clock).many(count, gates=(use_of(spec),), key=None, expires_at=None)
    await store.enqueue(jobs)
    return store


async def test_rate_just_used_up_by_a_claim_says_when_to_claim_again() -> None:
    clock = FakeClock()
    store = await queued(clock, RUNWAY, 3)
    reply = await claimed(store, 1)
    assert len(reply.jobs) == 1
    assert reply.next_at == reply.now + 75_000


async def test_last_job_of_a_flow_records_its_wait_behind_the_gate() -> None:
    clock = FakeClock()
    store = await queued(clock, RUNWAY, 2)
    await claimed(store, 1)
    clock.advance(75_000)
    (last,) = (await claimed(store, 2)).jobs
    view = await store.read(JobQuery(id=last.id))
    assert view is not None
    assert view.runs[0].blocked_ms == 75_000


async def test_full_gate_bounds_the_jobs_that_a_claim_reads(monkeypatch) -> None:
    store = await queued(FakeClock(), Slots("desk", 1), 500)
    asked: list[int] = []
    heads = store._ledger.jobs.heads
    monkeypatch.setattr(
        store._ledger.jobs, "heads", lambda flow, limit: asked.append(limit) or heads(flow, limit)
    )
    assert len((await claimed(store, 1, n=400)).jobs) == 1
    assert sum(asked) <= 32


async def test_time_behind_a_shared_and_a_keyed_gate_is_counted_once() -> None:
    clock = FakeClock()
    phone, desk = Rate("phone:{phone}", 1, per="60s"), Slots("desk", 1)
    store = MemoryStore(clock)
    gates = tuple(DeclareGate(spec=spec) for spec in (phone, desk))
    await store.define(DefineRequest(items=gates, author="test"))
    factory = JobFactory(clock)
    jobs = [
        factory.make(gates=(use_of(desk), use_of(phone, phone=to)), due_at=clock() + n)
        for n, to in enumerate(["5", "5", "6", "7"])
    ]
    await store.enqueue(jobs)
    clock.advance(1_000)
    (first,) = (await claimed(store, 1)).jobs
    await settled(store, first)
    # The second is parked at its phone; the third takes the desk; the flow is blocked.
    (third,) = (await claimed(store, 2)).jobs
    assert third.id == jobs[2].id
    for _ in range(9):
        clock.advance(10_000)
        await store.beat(BeatRequest(worker="w", running=((third.id, third.run),), request=2))
        assert (await claimed(store, 3)).jobs == []
    await settled(store, third)
    (second,) = (await claimed(store, 3)).jobs
    assert second.id == jobs[1].id
    view = await store.read(JobQuery(id=second.id))
    assert view is not None
    (run,) = view.runs
    assert 85_000 < run.blocked_ms <= run.claimed_at - run.due_at


async def settled(store: MemoryStore, job: Claimed) -> None:
    outcomes = (Succeeded(job.id, job.run),)
    assert await store.settle(SettleRequest(worker="w", outcomes=outcomes)) == [Verdict.DONE]
