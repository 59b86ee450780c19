"""When memory is full, calls that free memory succeed, and all others are refused completely."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from headway.contract.claims import BeatRequest
from headway.contract.definitions import (
    CloseGate,
    DeclareEntry,
    DeclareGate,
    DefineRequest,
    EntrySpec,
    FireRequest,
)
from headway.contract.operate import ActRequest, Verb
from headway.contract.outcomes import Failed, HandedOver, SettleRequest, Succeeded
from headway.contract.signals import Signal
from headway.contract.store import InFlight
from headway.contract.views import JobQuery, StatsQuery
from headway.core.errors import StoreFull
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.timetable.schedule import Every
from headway.stores.redis.store import RedisStore
from headway.testing.clock import START_AT, FakeClock
from headway.testing.dump import Dump, differences, dump
from tests.redis.admin import admin, claim, new_job, new_url, opened
from tests.servers.fixtures import made
from tests.servers.redis import RedisServer

LINE = Slots("line", 3)
USE = GateUse(name="line", template="line", shared=True)
Step = Callable[[RedisStore, list[str]], Awaitable[object]]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server for this test only, because its limit is changed."""
    with made(RedisServer) as running:
        yield running


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    one = opened(new_url(server.url), FakeClock())
    yield one
    set_limit(server, 0)
    await one.close()


def set_limit(server: RedisServer, size: int) -> None:
    with admin(server.url) as client:
        client.config_set("maxmemory", size)


@pytest.fixture
async def held(store: RedisStore, server: RedisServer) -> list[str]:
    """Ids of jobs that hold a gate: one runs, one awaits, one runs. Then memory is full."""
    entry = EntrySpec(name="nightly", schedule=Every(60_000), job=new_job())
    await define(store, DeclareGate(spec=LINE), DeclareEntry(spec=entry))
    jobs = [new_job(gates=(USE,)) for _ in range(4)]
    await store.enqueue(jobs)
    claimed = await claim(store)
    ids = [job.id for job in claimed.jobs]
    await settle(store, HandedOver(ids[1], 1, key="sid"))
    set_limit(server, 1)
    return [*ids, jobs[3].id]


async def define(store: RedisStore, *items: DeclareGate | DeclareEntry | CloseGate) -> int:
    return await store.define(DefineRequest(items=items, author="ann"))


async def settle(store: RedisStore, *outcomes: Succeeded | Failed | HandedOver) -> object:
    return await store.settle(SettleRequest(worker="w", outcomes=outcomes))


async def act(store: RedisStore, verb: Verb, job: str) -> object:
    return await store.act(ActRequest(request="r1", ids=(job,), verb=verb, author="ann"))


PASSES: dict[str, Step] = {
    "settle plain": lambda store, ids: settle(store, Succeeded(ids[0], 1)),
    "settle with more to say": lambda store, ids: settle(
        store, Succeeded(ids[0], 1, result=b"1"), Failed(ids[2], 1, error="boom")
    ),
    "hand over": lambda store, ids: settle(store, HandedOver(ids[0], 1, key="other")),
    "beat": lambda store, ids: store.beat(
        BeatRequest(worker="w", running=tuple((one, 1) for one in ids[:3]))
    ),
    "leave": lambda store, _: store.beat(BeatRequest(worker="w", leaving=True)),
    "signal": lambda store, _: store.signal(Signal(key="sid", event="1")),
    "release": lambda store, ids: store.release_permit("line", ids[0], "ann", "stuck"),
    "cancel": lambda store, ids: act(store, Verb.CANCEL, ids[3]),
    "claim": lambda store, _: claim(store, request=2),
    "sweep": lambda store, _: store.sweep(100),
    "lead": lambda store, _: store.lead("sweep", "me", 1000),
    "new epoch": lambda store, _: store.new_epoch("ann", "a drill"),
}

REFUSED: dict[str, Step] = {
    "enqueue": lambda store, _: store.enqueue([new_job(), new_job()]),
    "restore": lambda store, _: store.restore(
        [InFlight(job=new_job(), signal_key="x", since_at=START_AT, deadline_ms=1000)]
    ),
    "define": lambda store, _: define(store, CloseGate(name="line")),
    "fire": lambda store, _: store.fire(
        FireRequest(
            entry="nightly",
            revision=1,
            moments=(START_AT + 60_000,),
            ahead_until=START_AT + 60_000,
        )
    ),
    "signal that nobody awaits": lambda store, _: store.signal(Signal(key="nobody", event="1")),
}


@pytest.mark.parametrize("name", PASSES)
async def test_full_memory_accepts_what_frees_memory(
    store: RedisStore, held: list[str], name: str
) -> None:
    await PASSES[name](store, held)
    assert await differences(store) == []


async def test_permit_released_into_a_full_memory_starts_the_next(
    store: RedisStore, held: list[str]
) -> None:
    await settle(store, Succeeded(held[0], 1))
    assert [job.id for job in (await claim(store, request=2)).jobs] == [held[3]]
    done = await store.read(JobQuery(id=held[0]))
    assert done is not None
    assert done.state == "succeeded"


@pytest.mark.parametrize("name", REFUSED)
async def test_full_memory_completely_refuses_what_needs_memory(
    store: RedisStore, held: list[str], server: RedisServer, name: str
) -> None:
    before: Dump = await dump(store)
    with pytest.raises(StoreFull):
        await REFUSED[name](store, held)
    assert await dump(store) == before
    set_limit(server, 0)
    await REFUSED[name](store, held)
    assert (await store.read(StatsQuery())).counts["running"] == 2
