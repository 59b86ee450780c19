"""What simulated days brought to light in the engine; each mended mistake leaves a test."""

from __future__ import annotations

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest
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


async def test_a_rate_that_a_claim_has_just_used_up_says_when_it_is_worth_asking_again() -> None:
    clock = FakeClock()
    store = await queued(clock, RUNWAY, 3)
    reply = await claimed(store, 1)
    assert len(reply.jobs) == 1
    assert reply.next_at == reply.now + 75_000


async def test_the_last_job_of_a_flow_has_its_wait_behind_the_gate_on_its_run() -> None:
    clock = FakeClock()
    store = await queued(clock, RUNWAY, 2)
    await claimed(store, 1)
    clock.advance(75_000)
    (last,) = (await claimed(store, 2)).jobs
    view = await store.read(JobQuery(id=last.id))
    assert view is not None
    assert view.runs[0].blocked_ms == 75_000


async def test_a_full_gate_bounds_the_jobs_that_a_claim_reads(monkeypatch) -> None:
    store = await queued(FakeClock(), Slots("desk", 1), 500)
    asked: list[int] = []
    heads = store._ledger.jobs.heads
    monkeypatch.setattr(
        store._ledger.jobs, "heads", lambda flow, limit: asked.append(limit) or heads(flow, limit)
    )
    assert len((await claimed(store, 1, n=400)).jobs) == 1
    assert sum(asked) <= 32
