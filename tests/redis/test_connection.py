from __future__ import annotations

import asyncio
import gc
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import hiredis
import pytest

from headway.contract.claims import BeatRequest
from headway.contract.signals import Signal, SignalKind
from headway.contract.views import JobQuery, JobsQuery
from headway.core.errors import (
    OutcomeUnknown,
    PayloadTooLarge,
    SchemaMismatch,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreReadOnly,
    StoreUnavailable,
)
from headway.core.state import State
from headway.stores.redis import calls, pool
from headway.stores.redis.link import Link, LoopLink, NotSentError, ReplyLostError, packed
from headway.stores.redis.options import Address, parse_url
from headway.stores.redis.scripts import script
from headway.stores.redis.store import RedisStore
from tests.redis.admin import admin, claim, new_job, new_url, opened, settle
from tests.servers.fixtures import made
from tests.servers.proxy import Proxy
from tests.servers.redis import GivenRedis, RedisServer

_WORD = re.compile("'([A-Z]+)'")
"""What may be the name of a command in a script."""


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that the test may stop and reconfigure."""
    with made(lambda: RedisServer({"appendonly": "yes", "appendfsync": "always"})) as server:
        yield server


def driven(operation: Any) -> Any:
    """Run an operation to completion without an event loop."""
    with pytest.raises(StopIteration) as end:
        operation.send(None)
    return end.value.value


async def count(store: RedisStore) -> int:
    return len((await store.read(JobsQuery())).rows)


async def test_any_event_loop_and_any_thread_can_use_it(
    redis_server: RedisServer | GivenRedis,
) -> None:
    store = opened(new_url(redis_server.url))
    await store.enqueue([new_job()])

    async def one_more() -> None:
        await store.enqueue([new_job()])

    def in_thread() -> None:
        asyncio.run(one_more())
        driven(one_more())

    await asyncio.gather(*(asyncio.to_thread(in_thread) for _ in range(4)))
    assert await count(store) == 9
    await store.close()


def test_caller_without_a_loop_never_suspends(redis_server: RedisServer | GivenRedis) -> None:
    store = opened(new_url(redis_server.url))
    job = new_job()
    assert driven(store.enqueue([job]))[0].created
    claimed = driven(claim(store))
    assert [one.id for one in claimed.jobs] == [job.id]
    driven(settle(store, claimed))
    assert driven(store.read(JobQuery(id=job.id))).state is State.SUCCEEDED
    driven(store.close())


async def test_concurrent_callers_each_get_their_own_reply(
    redis_server: RedisServer | GivenRedis,
) -> None:
    store = opened(new_url(redis_server.url))
    jobs = [new_job() for _ in range(200)]
    replies = await asyncio.gather(*(store.enqueue([job]) for job in jobs))
    assert [reply[0].id for reply in replies] == [job.id for job in jobs]
    await store.close()


def test_caller_cancelled_while_connecting_leaves_no_connection_open(
    redis_server: RedisServer | GivenRedis,
) -> None:
    store = opened(new_url(redis_server.url))

    async def go_away() -> None:
        task = asyncio.create_task(store.enqueue([new_job()]))
        await asyncio.sleep(0)  # noqa: TID251  (one loop iteration, no sleep)
        task.cancel()
        await asyncio.wait([task])

    for _ in range(20):
        asyncio.run(go_away())
    asyncio.run(store.close())
    # Connections that were not closed are reported here, and a warning is an error.
    gc.collect()


async def test_call_larger_than_a_server_accepts_is_refused_and_not_repeated(
    redis_server: RedisServer | GivenRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_BYTES", 100_000)
    store = opened(new_url(redis_server.url))
    with pytest.raises(PayloadTooLarge, match="too large for Redis"):
        await store.enqueue([new_job(args=b'"%s"' % (b"x" * 60_000)) for _ in range(2)])
    small = new_job()
    assert (await store.enqueue([small]))[0].created
    assert len((await store.read(JobsQuery())).rows) == 1
    await store.close()


async def test_closed_store_is_refused(redis_server: RedisServer | GivenRedis) -> None:
    store = opened(new_url(redis_server.url))
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.enqueue([new_job()])


async def test_bytes_of_any_kind_are_returned_unchanged(
    redis_server: RedisServer | GivenRedis,
) -> None:
    store = opened(new_url(redis_server.url))
    kinds = (b"{}", bytes(range(256)), b"\xff" * 31, b"\x80" * 32, b"\xfe" * 300, b"x" * 70_000)
    for request, args in enumerate(kinds, 1):
        job = new_job(args=args)
        await store.enqueue([job])
        assert (await store.read(JobQuery(id=job.id))).args == args  # pyright: ignore[reportOptionalMemberAccess]
        claimed = await claim(store, request=request)
        assert [one.args for one in claimed.jobs] == [args]
        await settle(store, claimed)
    await store.close()


async def test_reset_connections_are_reopened(redis_server: RedisServer | GivenRedis) -> None:
    with Proxy(redis_server.url) as proxy:
        store = opened(new_url(proxy.url))
        await store.enqueue([new_job()])
        for _ in range(3):
            proxy.reset()
            try:
                await store.enqueue([new_job()])
            except OutcomeUnknown:
                # The reset may be noticed only while the call is in progress.
                await store.enqueue([new_job()])
        await store.close()


async def test_lost_reply_leaves_an_unknown_outcome_and_a_repeat_is_safe(
    redis_server: RedisServer | GivenRedis,
) -> None:
    with Proxy(redis_server.url) as proxy:
        store = opened(new_url(proxy.url))
        await store.enqueue([new_job()])
        job = new_job()
        proxy.lose_reply_to(job.id.encode())
        with pytest.raises(OutcomeUnknown):
            await store.enqueue([job])
        assert [one.created for one in await store.enqueue([job])] == [False]
        assert await count(store) == 2
        await store.close()


def test_lost_reply_to_a_caller_without_a_loop_leaves_an_unknown_outcome(
    redis_server: RedisServer | GivenRedis,
) -> None:
    with Proxy(redis_server.url) as proxy:
        store = opened(new_url(proxy.url))
        driven(store.enqueue([new_job()]))
        job = new_job()
        proxy.lose_reply_to(job.id.encode())
        with pytest.raises(OutcomeUnknown):
            store.enqueue([job]).send(None)
        assert not driven(store.enqueue([job]))[0].created
        driven(store.close())


def dropper(other: Any, times: int) -> Callable[[bytes], None]:
    """Flush all scripts just before a script is called, this many times."""
    left = iter(range(times))

    def look(sent: bytes) -> None:
        if b"EVALSHA" in sent and next(left, None) is not None:
            other.script_flush()

    return look


async def test_script_dropped_between_its_load_and_its_call_is_loaded_again(
    own_server: RedisServer,
) -> None:
    with Proxy(own_server.url) as proxy, admin(own_server.url) as other:
        store = opened(new_url(proxy.url))
        await store.enqueue([new_job()])
        for times in (1, 2, 3, 5):
            proxy.show(dropper(other, times))
            assert [one.created for one in await store.enqueue([new_job()])] == [True]
        proxy.show(None)
        assert await count(store) == 5
        await store.close()


def test_script_dropped_like_this_without_a_loop_is_loaded_again(
    own_server: RedisServer,
) -> None:
    with Proxy(own_server.url) as proxy, admin(own_server.url) as other:
        store = opened(new_url(proxy.url))
        proxy.show(dropper(other, 3))
        assert driven(store.enqueue([new_job()]))[0].created
        driven(store.close())


async def test_scripts_dropped_every_time_leave_nothing_written(
    own_server: RedisServer,
) -> None:
    with Proxy(own_server.url) as proxy, admin(own_server.url) as other:
        store = opened(new_url(proxy.url))
        await store.enqueue([new_job()])
        proxy.show(dropper(other, 1000))
        with pytest.raises(StoreUnavailable, match="scripts") as caught:
            await store.enqueue([new_job()])
        assert "SCRIPT FLUSH" in caught.value.hint
        proxy.show(None)
        assert await count(store) == 1
        await store.close()


async def test_silent_server_is_given_up_in_time(
    redis_server: RedisServer | GivenRedis,
) -> None:
    with Proxy(redis_server.url) as proxy:
        store = opened(new_url(proxy.url, timeout_ms=300))
        await store.enqueue([new_job()])
        proxy.stall()
        with pytest.raises(OutcomeUnknown, match="no reply"):
            await store.enqueue([new_job()])
        proxy.resume()
        await store.enqueue([new_job()])
        await store.close()


async def test_unreachable_server_is_reported_with_nothing_written(
    redis_server: RedisServer | GivenRedis,
) -> None:
    with Proxy(redis_server.url) as proxy:
        store = opened(new_url(proxy.url, patience_ms=100))
        await store.enqueue([new_job()])
        proxy.refuse()
        for _ in range(3):
            with pytest.raises(StoreError):
                await store.enqueue([new_job()])
        proxy.resume()
        await store.enqueue([new_job()])
        await store.close()


def test_unreachable_server_is_the_only_error_of_a_call_without_an_event_loop(
    redis_server: RedisServer | GivenRedis,
) -> None:
    with Proxy(redis_server.url) as proxy:
        store = opened(new_url(proxy.url, patience_ms=50))
        proxy.refuse()
        # A connection that the proxy accepts and then resets has an unknown outcome.
        with pytest.raises((StoreUnavailable, OutcomeUnknown)) as refused:
            store.enqueue([new_job()]).send(None)
    chain = [refused.value]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(before)
    assert not [one for one in chain if isinstance(one, RuntimeError)]


async def test_patience_starts_again_after_a_long_outage(
    redis_server: RedisServer | GivenRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, comes_back = 0.0, False

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds
        if comes_back:
            proxy.resume()

    monkeypatch.setattr(pool, "pause", pause)
    monkeypatch.setattr(pool, "monotonic", lambda: now)
    with Proxy(redis_server.url) as proxy:
        store = opened(new_url(proxy.url, patience_ms=1_000))
        await store.enqueue([new_job()])
        now += 1
        proxy.refuse()
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(driven, store.enqueue([new_job()]))
        proxy.resume()
        # On the link of this loop, which needs no patience.
        await store.enqueue([new_job()])
        # Much later, the server is unreachable for a short time.
        now += 3_600
        proxy.refuse()
        comes_back = True
        await asyncio.to_thread(driven, store.enqueue([new_job()]))
        assert await count(store) == 3
        await store.close()


def test_store_does_not_open_without_a_server() -> None:
    with pytest.raises(StoreUnavailable, match="unreachable"):
        opened("redis://127.0.0.1:1?patience_ms=50")


async def test_restarted_server_is_found_again_with_all_acknowledged_work(
    own_server: RedisServer,
) -> None:
    store = opened(new_url(own_server.url))
    job = new_job()
    await store.enqueue([job])
    own_server.kill()
    own_server.start()
    claimed = await claim(store)
    assert [one.id for one in claimed.jobs] == [job.id]
    assert await settle(store, claimed)
    await store.close()


def test_evicting_server_is_refused(own_server: RedisServer) -> None:
    with admin(own_server.url) as other:
        other.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(StoreUnavailable, match="evicts keys") as caught:
            opened(new_url(own_server.url))
        assert "noeviction" in caught.value.hint
        other.config_set("maxmemory-policy", "noeviction")
    asyncio.run(opened(new_url(own_server.url)).close())


def test_password_is_required_and_used(own_server: RedisServer) -> None:
    with admin(own_server.url) as other:
        other.config_set("requirepass", "aloud")
        with pytest.raises(StoreUnavailable, match="NOAUTH") as caught:
            opened(new_url(own_server.url))
        assert "password" in caught.value.hint
        with pytest.raises(StoreUnavailable, match="WRONGPASS"):
            opened(new_url(own_server.url.replace("//", "//:wrong@")))
        asyncio.run(opened(new_url(own_server.url.replace("//", "//:aloud@"))).close())


def test_server_with_too_many_clients_is_unavailable() -> None:
    """It refuses the first command, AUTH."""
    options = {"maxclients": "1", "requirepass": "aloud"}
    with (
        made(lambda: RedisServer(options)) as server,
        socket.create_connection(("127.0.0.1", server.port)) as only,
    ):
        only.sendall(b"PING\r\n")
        assert b"NOAUTH" in only.recv(99)
        with pytest.raises(StoreUnavailable) as caught:
            opened(new_url(server.url.replace("//", "//:aloud@")))
        assert not isinstance(caught.value, StoreMisconfigured)


async def test_user_with_the_documented_rights_suffices(own_server: RedisServer) -> None:
    with admin(own_server.url) as other:
        rights = "resetchannels ~{headway:calls}:* &{headway:calls}:* +@all -@dangerous +info"
        other.execute_command("ACL", "SETUSER", "worker", "on", ">word", *rights.split())
    url = own_server.url.replace("//", "//worker:word@")
    store = opened(f"{url}?namespace=calls")
    await store.enqueue([new_job()])
    claimed = await claim(store)
    await settle(store, claimed)
    await store.close()
    with pytest.raises(StoreUnavailable, match="NOPERM"):
        opened(f"{url}?namespace=other")


def test_each_command_of_the_scripts_must_be_permitted(own_server: RedisServer) -> None:
    lua = Path(str(files("headway.stores.redis"))) / "lua"
    words = {word for file in lua.rglob("*.lua") for word in _WORD.findall(file.read_text())}
    url = new_url(own_server.url.replace("//", "//worker:word@"))
    with admin(own_server.url) as other:
        known = {name.upper() for name in other.command()}
        other.execute_command("ACL", "SETUSER", "worker", "on", ">word", "~*", "&*", "+@all")
        for command in sorted(words & known | {"EVALSHA", "SCRIPT", "MULTI"}):
            other.execute_command("ACL", "SETUSER", "worker", f"-{command}")
            with pytest.raises(StoreMisconfigured, match="(?i)NOPERM.*" + command):
                opened(url)
            other.execute_command("ACL", "SETUSER", "worker", f"+{command}")
        assert not other.keys("*")
    asyncio.run(opened(url).close())


async def test_rights_taken_away_from_an_open_store_are_named(own_server: RedisServer) -> None:
    with admin(own_server.url) as other:
        other.execute_command("ACL", "SETUSER", "worker", "on", ">word", "~*", "&*", "+@all")
        store = opened(new_url(own_server.url.replace("//", "//worker:word@")))
        await store.enqueue([new_job()])
        other.execute_command("ACL", "SETUSER", "worker", "-zadd")
        with pytest.raises(StoreMisconfigured) as caught:
            await store.enqueue([new_job()])
    assert "+@all" in caught.value.hint
    assert "in part" in caught.value.hint
    await store.close()


async def test_replica_refuses_and_its_master_is_waited_for(own_server: RedisServer) -> None:
    store = opened(new_url(own_server.url, patience_ms=200))
    await store.enqueue([new_job()])
    with admin(own_server.url) as other:
        other.replicaof("127.0.0.1", "1")
        # On the connection that is open, then on a new one.
        for _ in range(2):
            with pytest.raises(StoreReadOnly) as refused:
                await store.enqueue([new_job()])
            assert "the master's address" in refused.value.hint
        other.replicaof("NO", "ONE")
    await store.enqueue([new_job()])
    await store.close()


async def test_full_memory_refuses_jobs_completely_and_lets_running_ones_settle(
    own_server: RedisServer,
) -> None:
    store = opened(new_url(own_server.url))
    await store.enqueue([new_job() for _ in range(20)])
    claimed = await claim(store)
    with admin(own_server.url) as other:
        other.config_set("maxmemory", 1)
        before = other.dbsize()
        # Plain jobs, and jobs that only the full script creates.
        for args in (b"{}", b"x" * 1000):
            with pytest.raises(StoreFull, match="OOM") as caught:
                await store.enqueue([new_job(args=args) for _ in range(100)])
            assert "maxmemory" in caught.value.hint
        assert other.dbsize() == before
        assert await count(store) == 20
        assert [str(one) for one in await settle(store, claimed)] == ["done"] * 10
        again = await claim(store, request=2)
        assert len(again.jobs) == 10
        await settle(store, again)
        await store.sweep(100)
        other.config_set("maxmemory", 0)
    await store.enqueue([new_job()])
    await store.close()


async def test_store_of_another_format_is_refused_and_unchanged(
    redis_server: RedisServer | GivenRedis,
) -> None:
    url = new_url(redis_server.url)
    store = opened(url)
    with admin(redis_server.url) as other:
        facts = f"{{headway:{parse_url(url).namespace}}}:facts"
        other.hset(facts, "format", "99")
        with pytest.raises(SchemaMismatch, match="format 99"):
            await store.enqueue([new_job()])
        with pytest.raises(SchemaMismatch):
            opened(url)
    await store.close()


def test_unix_socket_leads_to_the_same_store(own_server: RedisServer) -> None:
    one = opened(f"{own_server.url}?namespace=n")
    other = opened(f"{own_server.socket_url}&namespace=n")
    job = new_job()
    driven(one.enqueue([job]))
    assert driven(other.read(JobQuery(id=job.id))) is not None
    driven(one.close())
    driven(other.close())


def test_link_distinguishes_sent_from_unsent_calls(own_server: RedisServer) -> None:
    options = parse_url(own_server.url)
    link = Link(options.addresses[0], options, options.account)
    assert link.ask("PING") == b"PONG"
    own_server.kill()
    with pytest.raises(ReplyLostError):
        link.call(packed("PING"))
    link.close()
    with pytest.raises(NotSentError):
        Link(options.addresses[0], options, options.account)


async def test_beat_overtakes_calls_waiting_on_its_loops_link(
    redis_server: RedisServer | GivenRedis,
) -> None:
    # Thousands of signals on one link take a busy machine longer than the usual limit.
    store = opened(new_url(redis_server.url, timeout_ms=120_000))
    beat = BeatRequest(worker="w", lease_ms=30_000)
    note = Signal(key="", event="e", kind=SignalKind.NOTE, label="x", body=b"1" * 10_000)
    # From here on, both links exist.
    await store.beat(beat)
    await store.signal(replace(note, key="first"))
    order: list[str] = []

    async def noted(what: str, asked: Awaitable[object]) -> None:
        await asked
        order.append(what)

    # More than all buffers of a connection can take, so the last ones cannot be sent before the
    # beat.
    waiting = [
        asyncio.ensure_future(noted("signal", store.signal(replace(note, key=f"k{n}"))))
        for n in range(3_000)
    ]
    await asyncio.sleep(0)  # noqa: TID251  (lets the signals be sent; no time passes)
    await noted("beat", store.beat(beat))
    await asyncio.gather(*waiting)
    assert len(order) == 3_001
    assert order[-1] == "signal"
    await store.close()


def test_reply_without_a_loop_ends_the_outage(
    redis_server: RedisServer | GivenRedis,
) -> None:
    store = opened(new_url(redis_server.url))
    store._calls.pool._away_since = 0.0
    driven(store.read(JobsQuery()))
    assert store._calls.pool._away_since is None
    driven(store.close())


def test_link_returned_to_a_closed_pool_is_closed(
    redis_server: RedisServer | GivenRedis,
) -> None:
    store = opened(new_url(redis_server.url))
    link = store._calls.pool.take()
    driven(store.close())
    store._calls.pool.give_back(link)
    assert link.socket.fileno() == -1


def linked() -> tuple[LoopLink, socket.socket]:
    """Return a link of the running loop, and the server's end of its connection."""
    ours, theirs = socket.socketpair()
    link = Link.__new__(Link)
    link.address, link.reader, link.socket = Address("", 0), hiredis.Reader(), ours
    return LoopLink(link, timeout=60), theirs


async def test_only_calls_sent_when_a_link_failed_are_unknown() -> None:
    link, theirs = linked()
    sent, waiting = link.call(packed("PING")), link.call(packed("PING"))
    link.close()
    with pytest.raises(ReplyLostError):
        await sent
    with pytest.raises(NotSentError):
        await waiting
    theirs.close()


async def test_call_of_which_the_socket_took_nothing_was_not_sent() -> None:
    link, theirs = linked()
    # Not checked before the call: the server may vanish between a check and the call.
    link._received_at = asyncio.get_running_loop().time() + 3_600
    theirs.close()
    with pytest.raises(NotSentError):
        await link.call(packed("PING"))


async def test_calls_behind_a_partly_sent_one_are_sent_after_it() -> None:
    link, theirs = linked()
    theirs.setblocking(False)
    loop, calls = asyncio.get_running_loop(), [packed("SET", "k", b"v" * 8_000_000), packed("PING")]
    replies = [link.call(call) for call in calls]
    whole, got = b"".join(calls), bytearray()
    while len(got) < len(whole):
        got += await loop.sock_recv(theirs, 1_000_000)
    assert got == whole
    theirs.sendall(b"+OK\r\n+PONG\r\n")
    assert await asyncio.gather(*replies) == [b"OK", b"PONG"]
    link.close()
    theirs.close()


def test_call_that_waited_for_a_thread_is_refused_with_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that does not reply takes ten seconds of each thread, and there are few of them."""
    clock = [1_000.0]
    monkeypatch.setattr(pool, "monotonic", lambda: clock[0])
    tries: list[float] = []

    def connect(_: pool.Pool) -> Link:
        tries.append(clock[0])
        clock[0] += 10
        message = "no reply"
        raise NotSentError(message)

    monkeypatch.setattr(pool.Pool, "connect", connect)
    monkeypatch.setattr(pool, "pause", lambda _: None)
    links = pool.Pool(parse_url("redis://127.0.0.1:1/0?patience_ms=2000"), "key")

    def run(asked: float) -> None:
        with pytest.raises(StoreUnavailable, match="no reply"):
            links.run(script("verbs.claim"), b"", asked)

    run(asked=1_000.0)
    assert tries == [1_000.0, 1_010.0]
    # Made before that failed, and not served since.
    run(asked=1_001.0)
    assert tries == [1_000.0, 1_010.0]
    # Made after that: its server may be back.
    run(asked=1_020.0)
    assert tries == [1_000.0, 1_010.0, 1_020.0]
    # A reply proves that it is back.
    links.note_answer()
    run(asked=1_001.0)
    assert tries[3:] == [1_030.0, 1_040.0]
