"""What is forgotten leaves no key, index or reply behind: a Redis store lives in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from headway.contract.claims import BeatRequest, ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.operate import ActRequest, Verb
from headway.contract.outcomes import Died, HandedOver, Outcome, SettleRequest, Succeeded
from headway.contract.signals import Signal
from headway.contract.store import Store
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.job import NewJob, derived_id
from headway.testing.clock import FakeClock
from headway.testing.jobs import use_of
from tests.redis.admin import admin, new_url, opened
from tests.redis.harness import Snippets
from tests.servers.redis import GivenRedis, RedisServer

PHONE, RATE = Slots("phone:{number}", 1), Rate("rate:{number}", 2, "1m")
DAY_MS = 86_400_000
STAYS = {
    *("facts", "templates", "lanes", "counts", "totals", "numbers", "trail", "trail_of"),
    *("answers", "answered"),
}
"""Keys that do not grow with the jobs, and keys that are kept for operators."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def url(redis_server: RedisServer | GivenRedis) -> str:
    return new_url(redis_server.url)


@pytest.fixture
async def store(url: str, clock: FakeClock) -> AsyncIterator[Store]:
    store = opened(url, clock)
    yield store
    await store.close()


@pytest.fixture
def namespace(url: str) -> Iterator[Snippets]:
    snippets = Snippets(url.partition("?")[0], url.rpartition("=")[2])
    yield snippets
    snippets.close()


def _job(number: int, **fields: object) -> NewJob:
    return NewJob(id=derived_id("forgetting", number), kind="call", **fields)  # type: ignore[arg-type]


async def _claim(store: Store, request: int) -> list[tuple[str, int]]:
    reply = await store.claim(
        ClaimRequest(worker="w", request=request, lanes=(("main", 1),), n=10, free=10)
    )
    return [(job.id, job.run) for job in reply.jobs]


async def _settle(store: Store, *outcomes: Outcome) -> None:
    await store.settle(SettleRequest(worker="w", outcomes=outcomes))


def _held(namespace: Snippets) -> dict[str, dict[bytes, object]]:
    return {key.rpartition(":")[2]: kept for key, kept in namespace.contents().items()}


async def test_forgotten_jobs_leave_only_their_counts(
    store: Store, clock: FakeClock, namespace: Snippets
) -> None:
    items = tuple(DeclareGate(spec=spec) for spec in (PHONE, RATE))
    await store.define(DefineRequest(items=items, author="ann"))
    gates = (use_of(PHONE, number=1), use_of(RATE, number=1))
    called, failed, _, cancelled, plain = jobs = [
        _job(1, key="one", subject="her", gates=gates, args=b"[" + b"1," * 999 + b"1]"),
        _job(2, key="two", subject="her"),
        _job(3, key="three", subject="him", gates=gates, expires_at=clock() + 30_000),
        _job(4, key="four", due_at=clock() + DAY_MS),
        _job(5),
    ]
    await store.enqueue(jobs)
    assert await _claim(store, 1) == [(job.id, 1) for job in (called, failed, plain)]
    await store.signal(Signal(key="sid", event="early"))
    await store.signal(Signal(key="nobody", event="kept"))
    await _settle(
        store, HandedOver(called.id, 1, key="sid"), Died(failed.id, 1), Succeeded(plain.id, 1)
    )
    await store.signal(Signal(key="sid", event="end"))
    await store.act(
        ActRequest(request="cancel", verb=Verb.CANCEL, ids=(cancelled.id,), author="ann")
    )
    assert _held(namespace).keys() > STAYS
    clock.advance(30_000)
    await store.sweep(1000)
    clock.advance(30 * DAY_MS)
    await store.beat(BeatRequest(worker="w", lease_ms=1000, leaving=True))
    clock.advance(DAY_MS)
    for _ in range(3):
        await store.sweep(1000)
    assert _held(namespace).keys() <= STAYS


async def test_removal_of_jobs_does_not_read_their_long_values(
    store: Store, clock: FakeClock, redis_server: RedisServer | GivenRedis
) -> None:
    async def reads(number: int, args: bytes) -> int:
        job = _job(number, args=args, due_at=clock() + DAY_MS)
        await store.enqueue([job])
        await store.act(
            ActRequest(request=str(number), verb=Verb.CANCEL, ids=(job.id,), author="ann")
        )
        clock.advance(30 * DAY_MS)
        with admin(redis_server.url) as other:
            before = other.info("commandstats")["cmdstat_hmget"]["calls"]
            assert (await store.sweep(10)).removed == 1
            return int(other.info("commandstats")["cmdstat_hmget"]["calls"]) - before

    assert await reads(1, b"[1]") == await reads(2, b"[" + b"1," * 999 + b"1]")


async def test_replies_to_operators_are_forgotten_as_new_ones_arrive(
    store: Store, clock: FakeClock, namespace: Snippets
) -> None:
    async def ask(number: int) -> None:
        await store.act(
            ActRequest(
                request=str(number), verb=Verb.CANCEL, ids=(_job(1).id,), author="ann", reason=""
            )
        )

    def kept() -> list[int]:
        return [len(_held(namespace)[name]) for name in ("answers", "answered")]

    for number in range(150):
        await ask(number)
    assert kept() == [150, 150]
    clock.advance(DAY_MS)
    # Each call also removes a hundred old ones.
    await ask(150)
    assert kept() == [51, 51]
    await ask(151)
    assert kept() == [2, 2]
