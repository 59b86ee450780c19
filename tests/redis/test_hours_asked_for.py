"""A script knows no time zones: the first one that needs hours gets them from the caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from headway.contract.definitions import (
    DeclareEntry,
    DeclareGate,
    DefineRequest,
    EntrySpec,
    FireRequest,
)
from headway.contract.outcomes import NextStage, Outcome, SettleRequest, Succeeded
from headway.contract.store import InFlight, Store
from headway.contract.views import GatesQuery
from headway.core.gates.opening import Hours
from headway.core.gates.spec import GateUse
from headway.core.job import DAY_MS, NewJob, derived_id
from headway.core.timetable.schedule import Every
from headway.stores.memory import MemoryStore
from headway.testing.clock import START_AT, FakeClock
from tests.redis.admin import claim as claim_of
from tests.redis.admin import new_url, opened
from tests.servers.redis import GivenRedis, RedisServer

OFFICE = Hours("hours:{tz}", "09:00-18:00", tz="{tz}")
LONGER = Hours("hours:{tz}", "08:00-20:00", tz="{tz}")
BERLIN, LIMA = [
    GateUse(name=f"hours:{zone}", template="hours:{tz}", shared=True, zone=zone)
    for zone in ("Europe/Berlin", "America/Lima")
]
FIRST, SECOND = derived_id("hours", 1), derived_id("hours", 2)
Act = Callable[[Store], Awaitable[object]]


def job(number: int, *gates: GateUse) -> NewJob:
    return NewJob(id=derived_id("hours", number), kind="call", gates=gates)


async def settle(store: Store, *outcomes: Outcome) -> object:
    return await store.settle(SettleRequest(worker="w", outcomes=outcomes))


async def define(store: Store, item: DeclareGate | DeclareEntry) -> object:
    return await store.define(DefineRequest(items=(item,), author="ann"))


async def fire(store: Store) -> object:
    entry = EntrySpec(name="nightly", schedule=Every(60_000), job=job(9, BERLIN, LIMA))
    await define(store, DeclareEntry(spec=entry))
    moments = (START_AT + 60_000,)
    return await store.fire(
        FireRequest(entry="nightly", revision=1, moments=moments, ahead_until=moments[0])
    )


async def declare_again(store: Store) -> object:
    await store.enqueue([job(3, BERLIN), job(4, LIMA)])
    return await define(store, DeclareGate(spec=LONGER))


ACTS: dict[str, Act] = {
    "enqueue": lambda store: store.enqueue([job(3, BERLIN), job(4, LIMA)]),
    "restore": lambda store: store.restore(
        [InFlight(job=job(3, BERLIN, LIMA), signal_key="k", since_at=0, deadline_ms=99 * DAY_MS)]
    ),
    "settle": lambda store: settle(
        store,
        NextStage(FIRST, 1, stage="dial", gates=(BERLIN,)),
        Succeeded(SECOND, 1, then=(job(3, LIMA),)),
    ),
    "fire": fire,
    "declare again": declare_again,
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def stores(
    redis_server: RedisServer | GivenRedis, clock: FakeClock
) -> AsyncIterator[tuple[Store, Store]]:
    """Redis and memory, with the same two running jobs in each."""
    remote, memory = opened(new_url(redis_server.url), clock), MemoryStore(clock)
    for store in (remote, memory):
        await define(store, DeclareGate(spec=OFFICE))
        await store.enqueue([job(1), job(2)])
    await claim_of(remote)
    await claim_of(memory)  # pyright: ignore[reportArgumentType]
    yield remote, memory
    await remote.close()


async def both(stores: tuple[Store, Store], act: Act) -> tuple[object, object]:
    one, other = stores
    return await act(one), await act(other)


async def gates(store: Store) -> object:
    return (await store.read(GatesQuery())).rows


@pytest.mark.parametrize("name", ACTS)
async def test_hours_first_used_by_a_verb_equal_those_of_memory(
    stores: tuple[Store, Store], clock: FakeClock, name: str
) -> None:
    told, expected = await both(stores, ACTS[name])
    assert told == expected
    clock.advance(20 * 3_600_000)
    shown, wanted = await both(stores, gates)
    assert shown == wanted
    assert "hours:Europe/Berlin" in str(shown)
    assert "hours:America/Lima" in str(shown)


async def test_sweep_extends_hours_as_memory_does(
    stores: tuple[Store, Store], clock: FakeClock
) -> None:
    await both(stores, ACTS["enqueue"])
    clock.advance(10 * DAY_MS)
    await both(stores, lambda store: store.sweep(100))
    clock.advance(10 * DAY_MS + 20 * 3_600_000)
    shown, wanted = await both(stores, gates)
    assert shown == wanted
