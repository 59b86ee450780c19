"""Servers found through others: a master by its sentinels, a slot by the nodes of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.runtime.timing import pause
from headway.stores.redis.options import Address, parse_url
from headway.stores.redis.server import masters
from tests.redis.admin import admin, claim, new_job, opened, settle
from tests.redis.sentinels import SERVICE, Sentinel
from tests.servers.fixtures import made
from tests.servers.redis import RedisServer

LIMIT = 240.0


async def until(happens: Any) -> None:
    """Wait until the condition holds.

    Raises:
        TimeoutError: it does not hold in time.
    """
    async with asyncio.timeout(LIMIT):
        while not happens():
            await pause(0.05)


@pytest.fixture
def pair() -> Iterator[tuple[RedisServer, RedisServer, Sentinel]]:
    """A master, its replica, and the sentinel that watches both."""
    with ExitStack() as stack:
        master = stack.enter_context(made(RedisServer))
        replica = stack.enter_context(made(RedisServer))
        with admin(replica.url) as other:
            other.replicaof("127.0.0.1", master.port)
        yield master, replica, stack.enter_context(Sentinel(master))


def sentinel_url(sentinel: Sentinel) -> str:
    dead = "127.0.0.1:1"
    return (
        f"redis+sentinel://{dead},127.0.0.1:{sentinel.port}/{SERVICE}?namespace=n&patience_ms=15000"
    )


@pytest.mark.slow
async def test_work_continues_at_the_replica_that_became_the_master(
    pair: tuple[RedisServer, RedisServer, Sentinel],
) -> None:
    master, replica, sentinel = pair
    store = opened(sentinel_url(sentinel))
    jobs = [new_job() for _ in range(3)]
    await store.enqueue(jobs)
    with admin(replica.url) as at_replica, admin(f"redis://127.0.0.1:{sentinel.port}") as watcher:
        await until(lambda: at_replica.info("replication").get("master_link_status") == "up")
        await until(lambda: watcher.sentinel_slaves(SERVICE))
        with admin(master.url) as at_master:
            assert at_master.wait(1, 10_000) == 1
        master.kill()
        more = new_job()
        try:
            await store.enqueue([more])
        except OutcomeUnknown:
            await store.enqueue([more])
        assert at_replica.info("replication")["role"] == "master"
    claimed = await claim(store)
    assert {job.id for job in claimed.jobs} == {job.id for job in [*jobs, more]}
    await settle(store, claimed)
    await store.close()


def test_service_unknown_to_every_sentinel_is_unreachable(
    pair: tuple[RedisServer, RedisServer, Sentinel],
) -> None:
    url = sentinel_url(pair[2]).replace(f"/{SERVICE}?", "/nothing?").replace("15000", "50")
    with pytest.raises(StoreUnavailable, match="knows no service 'nothing'"):
        opened(url)


@pytest.fixture
def cluster() -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two nodes that share the slots."""
    options = {"cluster-enabled": "yes", "cluster-node-timeout": "2000"}
    with ExitStack() as stack:
        nodes = [stack.enter_context(made(lambda: RedisServer(options))) for _ in range(2)]
        for node, slots in zip(nodes, (range(8192), range(8192, 16384)), strict=True):
            with admin(node.url) as other:
                other.execute_command("CLUSTER", "ADDSLOTS", *slots)
        with admin(nodes[0].url) as other:
            other.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
        yield nodes[0], nodes[1]


async def _joined(nodes: tuple[RedisServer, RedisServer]) -> None:
    for node in nodes:
        with admin(node.url) as other:
            await until(lambda: other.cluster("info")["cluster_state"] == "ok")
            await until(lambda: other.cluster("info")["cluster_known_nodes"] == "2")
            await until(lambda: len(other.execute_command("CLUSTER", "SLOTS")) == 2)


async def test_each_namespace_is_on_the_node_of_its_slot(
    cluster: tuple[RedisServer, RedisServer],
) -> None:
    await _joined(cluster)
    places: set[Address] = set()
    for name in ("a", "b", "c", "d", "e"):
        url = f"redis+cluster://127.0.0.1:{cluster[0].port}?namespace={name}"
        store = opened(url)
        job = new_job()
        await store.enqueue([job])
        claimed = await claim(store)
        assert [one.id for one in claimed.jobs] == [job.id]
        await settle(store, claimed)
        await store.sweep(10)
        await store.close()
        places |= set(masters(parse_url(url), f"{{headway:{name}}}:jobs"))
    assert len(places) == 2


async def test_node_of_another_slot_is_refused_without_the_cluster_scheme(
    cluster: tuple[RedisServer, RedisServer],
) -> None:
    await _joined(cluster)
    with admin(cluster[1].url) as other:
        first_slot = other.execute_command("CLUSTER", "KEYSLOT", "{headway:a}:facts") < 8192
    wrong = cluster[1] if first_slot else cluster[0]
    with pytest.raises(StoreUnavailable, match="MOVED") as caught:
        opened(f"{wrong.url}?namespace=a&patience_ms=50")
    assert "redis+cluster" in caught.value.hint
