from __future__ import annotations

import asyncio

import pytest
from msgspec import Raw

from headway.contract.definitions import DefineRequest, SetGate
from headway.contract.outcomes import Verdict
from headway.contract.views import TrailQuery, WhyQuery
from headway.core.errors import StoreChanged, UnknownGate
from headway.stores.redis.last_seen import LastSeen
from headway.stores.redis.link import Link, LoopLink, packed
from headway.stores.redis.options import parse_url
from headway.stores.redis.replies import CHANGED, DONE, MISMATCH, ScriptReply
from headway.stores.redis.scripts import script
from headway.stores.redis.values import encode
from headway.testing.clock import FakeClock
from tests.redis.admin import admin, claim, new_job, new_url, opened, settle
from tests.servers.redis import GivenRedis, RedisServer


def _wipe(url: str) -> None:
    """Delete one namespace, as a FLUSHALL deletes everything."""
    with admin(url) as other:
        keys = list(other.scan_iter(f"{{headway:{parse_url(url).namespace}}}:*", count=10_000))
        if keys:
            other.delete(*keys)


def _kept(url: str) -> dict[bytes, bytes]:
    with admin(url) as other:
        keys = list(other.scan_iter(f"{{headway:{parse_url(url).namespace}}}:*", count=10_000))
        return {key: other.dump(key) for key in keys}


def _put_back(url: str, kept: dict[bytes, bytes]) -> None:
    _wipe(url)
    with admin(url) as other:
        for key, value in kept.items():
            other.restore(key, 0, value)


async def test_wiped_store_refuses_claims_until_a_new_epoch_and_accepts_the_rest(
    redis_server: RedisServer | GivenRedis,
) -> None:
    url = new_url(redis_server.url)
    store = opened(url)
    await store.enqueue([new_job()])
    assert await store.suspicion() is None
    _wipe(url)
    assert await store.suspicion() is not None
    with pytest.raises(StoreChanged) as caught:
        await claim(store)
    assert "--new-epoch" in caught.value.hint
    job = new_job()
    assert [one.created for one in await store.enqueue([job])] == [True]
    assert await store.lead("sources", "me", 1000) == 1
    with pytest.raises(StoreChanged):
        await claim(store)
    assert await store.new_epoch("ann", "it was flushed") == 2
    assert await store.suspicion() is None
    assert [one.id for one in (await claim(store)).jobs] == [job.id]
    await store.close()


async def test_store_wiped_again_is_refused_though_its_mark_is_gone(
    redis_server: RedisServer | GivenRedis,
) -> None:
    url = new_url(redis_server.url)
    store = opened(url)
    await store.enqueue([new_job()])
    for _ in range(2):
        _wipe(url)
        with pytest.raises(StoreChanged):
            await claim(store)
    await store.close()


async def test_time_of_a_refused_call_does_not_bind_the_store(
    redis_server: RedisServer | GivenRedis,
) -> None:
    clock = FakeClock()
    store = opened(new_url(redis_server.url), clock)
    await store.enqueue([new_job()])
    clock.advance(5_000)
    # The store's time is written, and rolled back with the rest.
    with pytest.raises(UnknownGate):
        await store.define(DefineRequest(items=(SetGate(name="nobody", capacity=1),), author="ann"))
    assert len((await claim(store)).jobs) == 1
    assert await store.suspicion() is None
    await store.close()


async def test_store_found_changed_also_refuses_new_processes(
    redis_server: RedisServer | GivenRedis,
) -> None:
    url = new_url(redis_server.url)
    store = opened(url)
    await store.enqueue([new_job()])
    _wipe(url)
    with pytest.raises(StoreChanged):
        await claim(store)
    newcomer = opened(url)
    with pytest.raises(StoreChanged):
        await claim(newcomer)
    await newcomer.new_epoch("ann", "it was flushed")
    await claim(newcomer)
    await claim(store, request=2)
    await store.close()
    await newcomer.close()


async def test_backup_of_an_older_state_refuses_claims_though_time_passed(
    redis_server: RedisServer | GivenRedis,
) -> None:
    url = new_url(redis_server.url)
    clock = FakeClock()
    store, other = opened(url, clock), opened(url, clock)
    await store.enqueue([new_job()])
    kept = _kept(url)
    clock.advance(1000)
    claimed = await claim(store)
    assert len(claimed.jobs) == 1
    _put_back(url, kept)
    clock.advance(1000)
    # The first call that writes there detects it, whatever it writes, and marks it for all others.
    await store.enqueue([new_job()])
    with pytest.raises(StoreChanged):
        await claim(other)
    with pytest.raises(StoreChanged):
        await claim(store, request=2)
    await store.new_epoch("ann", "restored")
    assert await settle(store, claimed) == [Verdict.LOST]
    assert len((await claim(store, request=3)).jobs) == 2
    await store.close()
    await other.close()


@pytest.mark.parametrize(("fact", "found"), [("identity", "another"), ("epoch", "1")])
async def test_another_store_with_the_same_time_also_refuses_the_fast_path_of_claims(
    redis_server: RedisServer | GivenRedis, fact: str, found: str
) -> None:
    url = new_url(redis_server.url)
    store = opened(url)
    await store.new_epoch("ann", "a drill")
    await store.enqueue([new_job(), new_job(), new_job()])
    for request in (1, 2):
        assert len((await claim(store, request=request, n=1)).jobs) == 1
    with admin(url) as other:
        other.hset(f"{{headway:{parse_url(url).namespace}}}:facts", fact, found)
    with pytest.raises(StoreChanged):
        await claim(store, request=3, n=1)
    await store.close()


async def test_new_epoch_fences_runs_of_the_previous_one(
    redis_server: RedisServer | GivenRedis,
) -> None:
    store = opened(new_url(redis_server.url))
    await store.enqueue([new_job()])
    claimed = await claim(store)
    await store.new_epoch("ann", "a drill")
    assert await settle(store, claimed) == [Verdict.LOST]
    await store.close()


async def test_clock_that_was_ahead_is_set_back_by_an_operator(
    redis_server: RedisServer | GivenRedis,
) -> None:
    clock = FakeClock()
    store = opened(new_url(redis_server.url), clock)
    clock.advance(60_000)
    await store.enqueue([new_job()])
    clock.advance(-60_000)
    assert await store.reset_clock("ann", "the clock was wrong") == 60_000
    assert (await claim(store)).now == clock()
    await store.close()


async def test_mark_says_who_found_what_and_every_process_repeats_it(
    redis_server: RedisServer | GivenRedis,
) -> None:
    url = new_url(redis_server.url)
    store = opened(url)
    (job,) = await store.enqueue([new_job()])
    kept = _kept(url)
    _wipe(url)
    with pytest.raises(StoreChanged) as refused:
        await claim(store)
    newcomer = opened(url)
    found = await newcomer.suspicion()
    assert found is not None
    assert found.by.startswith("process ")
    assert "was seen before" in found.reason
    assert refused.value.message == found.message
    (line,) = (await newcomer.read(TrailQuery())).rows
    assert (line.at, line.author, line.reason) == (found.at, found.by, found.reason)
    assert (line.verb, line.target) == ("store changed", "store")
    waiting = new_job()
    await newcomer.enqueue([waiting])
    why = await newcomer.read(WhyQuery(id=waiting.id))
    assert why is not None
    assert found.reason in why.sentence
    assert "--new-epoch" in why.sentence
    # The first store is restored completely, without a mark.
    _put_back(url, kept)
    back = opened(url)
    assert [one.id for one in (await claim(back)).jobs] == [job.id]
    for one in (store, newcomer, back):
        await one.close()


async def test_link_to_a_replaced_server_proves_nothing(
    redis_server: RedisServer | GivenRedis,
) -> None:
    url = new_url(redis_server.url)
    options = parse_url(url)
    store = opened(url)
    await store.enqueue([new_job(), new_job()])
    # An older state is in another database, which only an old link reaches.
    with admin(url) as other:
        for key in other.scan_iter(f"{{headway:{options.namespace}}}:*"):
            other.copy(key, key, destination_db=1)
    await store.lead("chores", "me", 1_000)
    before = store._last_seen.packed
    while store._last_seen.packed == before:
        await store.lead("chores", "me", 1_000)
    link = store._calls.pool.connect()
    link.close()
    old = LoopLink(Link(link.address, options, options.account, 1), 10)
    await old.call(packed("SCRIPT", "LOAD", script("verbs.claim").text))
    loop = asyncio.get_running_loop()
    store._calls._links.pop((loop, False)).close()
    store._calls._links[loop, False] = old
    assert len((await claim(store)).jobs) == 2
    assert await store.suspicion() is None
    facts = f"{{headway:{options.namespace}}}:facts"
    with admin(url) as other:
        assert not other.hexists(facts, "suspect")
        other.select(1)
        assert not other.hexists(facts, "suspect")
        other.flushdb()
    await store.close()


def test_overtaken_reply_of_the_previous_epoch_is_not_what_was_last_seen() -> None:
    def reply(epoch: int, high: int) -> ScriptReply:
        nothing = Raw(b"\xc0")
        return ScriptReply(DONE, nothing, high, [], "store", epoch, high, mismatch=False)

    seen = LastSeen()
    seen.learn(reply(1, 5_000))
    seen.learn(reply(2, 3_000))
    after = seen.packed
    assert after == encode(("store", 2, 3_000))
    seen.learn(reply(1, 6_000))
    assert seen.packed == after


def test_suspicion_ends_with_a_new_epoch_and_starts_only_from_what_was_seen_here() -> None:
    def reply(epoch: int, high: int, status: int = DONE, *, mismatch: bool = False) -> ScriptReply:
        return ScriptReply(status, Raw(b"\xc0"), high, [], "store", epoch, high, mismatch)

    seen = LastSeen()
    seen.learn(reply(1, 5_000))
    # Another process detected it; and a reply on an old link proves nothing.
    seen.learn(reply(1, 2_000, CHANGED))
    seen.learn(reply(1, 2_000, MISMATCH, mismatch=True))
    assert seen.packed == encode(("store", 1, 5_000))
    seen.learn(reply(1, 2_000, mismatch=True))
    suspected = encode(("store", 1, 5_000, 1))
    assert seen.packed == suspected
    seen.learn(reply(1, 6_000))
    assert seen.packed == suspected
    seen.learn(reply(2, 2_000))
    assert seen.packed == encode(("store", 2, 2_000))
