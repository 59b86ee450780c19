"""Each read is a single script that writes nothing, so that a read-only replica can run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareEntry, DeclareGate, DefineRequest, EntrySpec
from headway.contract.store import Store
from headway.contract.views import (
    AuditQuery,
    FlowsQuery,
    GatesQuery,
    JobQuery,
    JobsQuery,
    LanesQuery,
    Query,
    SpecsQuery,
    StatsQuery,
    TimetableQuery,
    TrailQuery,
    WhyQuery,
    WorkersQuery,
)
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.job import NewJob
from headway.core.timetable.schedule import Every
from headway.stores import open_store
from headway.stores.redis import replies, views
from headway.stores.redis.scripts import key_suffixes, script
from headway.stores.redis.values import encode
from headway.testing.clock import FakeClock
from headway.testing.jobs import use_of
from tests.servers.fixtures import made
from tests.servers.redis import RedisServer

ODD = "lock:{key}"
SPECS = (
    Slots("line", 1),
    Slots(ODD, 1),
    Rate("rate", 2, "1h"),
    Pool("numbers", {"a": 1, "b/c": 2}),
)
JOB = "00000000-0000-4000-8000-000000000002"
QUERIES: list[Query[Any]] = [
    JobQuery(id=JOB),
    JobsQuery(runs=True, trail=True),
    JobsQuery(key="k", tenant="acme"),
    JobsQuery(subject="her", tenant="acme"),
    WhyQuery(id=JOB),
    FlowsQuery(lane="main"),
    FlowsQuery(gate="lock:x{y}"),
    GatesQuery(),
    GatesQuery(parked=True),
    GatesQuery(names=("all", "numbers", "numbers/b/c", "lock:x{y}", "no such gate")),
    SpecsQuery(),
    LanesQuery(),
    WorkersQuery(),
    TimetableQuery(),
    TimetableQuery(names=("nightly", "no such entry")),
    TrailQuery(),
    StatsQuery(),
    AuditQuery(),
]


@pytest.fixture(scope="module")
def master() -> Iterator[RedisServer]:
    with made(RedisServer) as server:
        yield server


@pytest.fixture(scope="module")
def replica(master: RedisServer) -> Iterator[RedisServer]:
    with made(RedisServer) as server, redis.Redis.from_url(server.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", master.port)
        yield server


async def fill(store: Store) -> None:
    """Create a little of everything."""
    entry = EntrySpec(name="nightly", schedule=Every(60_000), job=NewJob(id="", kind="tidy"))
    items = (*(DeclareGate(spec=spec) for spec in SPECS), DeclareEntry(spec=entry))
    await store.define(DefineRequest(items=items, author="ann"))
    uses = (use_of(SPECS[2]), use_of(SPECS[3]), use_of(SPECS[1], key="x{y}"))
    jobs = [
        NewJob(
            id=f"00000000-0000-4000-8000-{number:012}",
            kind="dial",
            tenant="acme",
            subject="her",
            key="k" if number == 1 else None,
            gates=uses,
        )
        for number in range(3)
    ]
    await store.enqueue(jobs)
    lanes = (("main", 1),)
    await store.claim(ClaimRequest(worker="w", request=1, lanes=lanes, n=9, free=9))


def asker(client: redis.Redis, namespace: str, now: int) -> Callable[[Query[Any]], Any]:
    """Return a function that runs the script of a read on this particular server."""

    def ask(query: Query[Any]) -> object:
        query = views.bounded(query)
        asked = views.request_of(query)
        run = script(asked.script)
        keys = [f"{{headway:{namespace}}}:{suffix}" for suffix in run.keys]
        arguments = [encode(asked.request), str(now), b"", b"origin", b""]
        reply = replies.decode_reply(client.eval(run.text, len(keys), *keys, *arguments))  # type: ignore[arg-type]
        assert reply.status == replies.DONE
        return views.answer(query, replies.untyped(reply.value))

    return ask


async def test_replica_answers_every_query_like_its_master(
    master: RedisServer, replica: RedisServer
) -> None:
    namespace, clock = uuid4().hex, FakeClock()
    store = open_store(f"{master.url}?namespace={namespace}", clock=clock)
    await fill(store)
    with redis.Redis.from_url(master.url) as client:
        client.set("last", namespace)
        # The last write has reached the replica, and so have all writes before it.
        assert client.wait(1, 10_000) == 1
    with redis.Redis.from_url(replica.url) as client:
        assert client.get("last") == namespace.encode()
        ask = asker(client, namespace, clock())
        for query in QUERIES:
            assert ask(query) == await store.read(query)
    await store.close()


async def test_no_query_changes_a_key(master: RedisServer) -> None:
    namespace, clock = uuid4().hex, FakeClock()
    store = open_store(f"{master.url}?namespace={namespace}", clock=clock)
    await fill(store)
    clock.advance(9_000)
    with redis.Redis.from_url(master.url) as client:
        keys = [f"{{headway:{namespace}}}:{suffix}" for suffix in key_suffixes()]
        before = [client.dump(key) for key in keys]
        for query in QUERIES:
            await store.read(query)
        assert [client.dump(key) for key in keys] == before
    await store.close()
