"""Bugs that the state machine found, each as a short test on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from headway.contract.claims import Claimed, ClaimRequest
from headway.contract.definitions import DeclareGate, DeclareLane, DefineRequest, LaneSpec
from headway.contract.outcomes import HandedOver, Returned, SettleRequest, Succeeded
from headway.contract.signals import Decided, Signal, SignalKind
from headway.contract.store import InFlight, Store
from headway.contract.views import JobQuery
from headway.core.errors import IdConflict, InvalidState, UnknownGate
from headway.core.gates.slots import Slots
from headway.core.job import FollowUp, JobPolicy, NewJob
from headway.core.state import State
from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.dump import dump
from headway.testing.jobs import use_of
from tests.machine.pair import Woken
from tests.servers.redis import GivenRedis, RedisServer

WORKER = "worker-1"
_NUMBERS = count(1)


def job(**fields: object) -> NewJob:
    identity = f"00000000-0000-4000-8000-{next(_NUMBERS):012}"
    return NewJob(id=identity, kind="dial", **fields)  # type: ignore[arg-type]


def in_flight(made: NewJob) -> InFlight:
    return InFlight(job=made, signal_key="call-1", since_at=0, deadline_ms=1_000)


async def claimed(store: Store, n: int, request: int = 1) -> list[Claimed]:
    claim = ClaimRequest(worker=WORKER, request=request, lanes=(("main", 1),), n=n, free=n)
    return (await store.claim(claim)).jobs


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest_asyncio.fixture(params=["memory", "sqlite", "redis"])
async def store(
    request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path
) -> AsyncIterator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore(clock)
    elif request.param == "sqlite":
        made = open_store(f"sqlite:///{tmp_path}/headway.db?synchronous=normal", clock=clock)
    else:
        server: RedisServer | GivenRedis = request.getfixturevalue("redis_server")
        made = open_store(f"{server.url}?namespace=found-{uuid4().hex}", clock=clock)
    yield made
    await made.close()


async def test_events_taken_by_an_undone_step_are_applied_in_order_of_arrival(
    store: Store,
) -> None:
    for number, decided in enumerate((Decided.DEAD, Decided.SUCCEEDED)):
        await store.signal(
            Signal(key="call-1", event=f"e{number}", kind=SignalKind.FINAL, decided=decided)
        )
    made = [job(), job()]
    await store.enqueue(made)
    one, other = await claimed(store, 2)
    handed = HandedOver(one.id, one.run, key="call-1", timeout_ms=9_000)
    with pytest.raises(InvalidState):
        await store.settle(
            SettleRequest(worker=WORKER, outcomes=(handed, Returned(other.id, other.run)))
        )
    await store.settle(SettleRequest(worker=WORKER, outcomes=(handed,)))
    view = await store.read(JobQuery(id=one.id))
    assert view is not None
    assert view.state is State.DEAD


async def test_settlement_with_a_refused_follow_up_leaves_nothing_behind(
    store: Store,
) -> None:
    alert = FollowUp(kind="alert", states=(State.SUCCEEDED,))
    made, taken = job(policy=JobPolicy(on_final=alert)), job(due_at=2**42)
    await store.enqueue([made, taken])
    (run,) = await claimed(store, 1)
    before = await dump(store)
    # Its alert could be created, but the follow-up that the run asks for cannot.
    said = Succeeded(run.id, run.run, then=(taken.changed(kind="text"),))
    with pytest.raises(IdConflict):
        await store.settle(SettleRequest(worker=WORKER, outcomes=(said,)))
    assert await dump(store) == before


async def test_time_of_a_refused_step_does_not_bind_a_store_whose_clock_went_back(
    store: Store, clock: FakeClock
) -> None:
    line = Slots("line", 1)
    await store.define(DefineRequest(items=(DeclareGate(spec=line),), author="code"))
    clock.advance(90)
    with pytest.raises(UnknownGate):
        await store.restore([in_flight(job(gates=(use_of(Slots("nowhere", 1)),)))])
    clock.advance(-40)
    made = job(gates=(use_of(line),))
    assert (await store.enqueue([made]))[0].created
    assert [one.id for one in await claimed(store, 1)] == [made.id]


async def test_lane_with_room_is_not_woken_while_its_jobs_wait_for_another_gate(
    store: Store, clock: FakeClock
) -> None:
    budget = Slots("budget", 1)
    lane = DeclareLane(spec=LaneSpec(name="main", concurrency=2))
    await store.define(DefineRequest(items=(DeclareGate(spec=budget), lane), author="ann"))
    spender, waiter = job(gates=(use_of(budget),)), job(gates=(use_of(budget),))
    other = job()
    await store.enqueue([spender, other, waiter])
    started = [one.id for request in (1, 2, 3) for one in await claimed(store, 1, request)]
    assert started == [spender.id, other.id]
    woken = Woken(store, clock)
    for ended, wakes in ((other, {}), (spender, {"main": None})):
        await store.settle(SettleRequest(worker=WORKER, outcomes=(Succeeded(ended.id, 1),)))
        assert woken.take() == wakes
