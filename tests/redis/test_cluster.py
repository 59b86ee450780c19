"""A cluster of three masters: the suite on it, each operation repeated; and a slot that moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import pytest

import headway as hw
from headway.contract.views import AuditQuery, StatsQuery
from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.runtime.timing import pause
from headway.stores import open_store
from headway.testing.conformance import MakeStore, StoreConformance
from tests.conformance.repeating_store import RepeatingStore
from tests.redis.admin import admin
from tests.servers.fixtures import made
from tests.servers.redis import RedisServer

NODES, SLOTS = 3, 16_384
LIMIT = 240.0
EACH = 150

Cluster = list[RedisServer]


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Yield masters that share the slots, once all of them agree on that."""
    options = {"cluster-enabled": "yes", "cluster-node-timeout": "3000"}
    with ExitStack() as stack:
        nodes = [stack.enter_context(made(lambda: RedisServer(options))) for _ in range(NODES)]
        ends = [SLOTS * place // NODES for place in range(NODES + 1)]
        for place, node in enumerate(nodes):
            with admin(node.url) as other:
                slots = range(ends[place], ends[place + 1])
                other.execute_command("CLUSTER", "ADDSLOTS", *slots)
                # Otherwise two of them may start in the same epoch, and disagree for seconds.
                other.execute_command("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for node in nodes[1:]:
            with admin(node.url) as other:
                other.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        for node in nodes:
            with admin(node.url) as other:
                asyncio.run(until(lambda: agreed(other)))
        yield nodes


def agreed(node: Any) -> bool:
    """Return whether a node knows all others and their slots."""
    state = node.cluster("info")
    known = state["cluster_known_nodes"], state["cluster_slots_assigned"]
    return state["cluster_state"] == "ok" and known == (str(NODES), str(SLOTS))


async def until(happens: Callable[[], object]) -> None:
    """Wait until the condition holds.

    Raises:
        TimeoutError: it does not hold in time.
    """
    async with asyncio.timeout(LIMIT):
        while not happens():
            await pause(0.02)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as nodes:
        yield nodes


def new_url(cluster: Cluster) -> str:
    """Return the URL of a store that is not used yet; each is in a different slot."""
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in cluster)
    return (
        f"redis+cluster://{hosts}?namespace=suite-{uuid4().hex}&patience_ms=20000&timeout_ms=120000"
    )


@pytest.mark.slow
@pytest.mark.third(2)
class TestRepeatedClusterStore(StoreConformance):
    @pytest.fixture
    def make_store(self, cluster: Cluster) -> MakeStore:
        return lambda clock: RepeatingStore(open_store(new_url(cluster), clock=clock))


def move_slot(url: str, cluster: Cluster) -> tuple[RedisServer, RedisServer]:
    """Move a namespace to another node, key by key, as `redis-cli --cluster reshard` does.

    Returns:
        The node that had it, and the one that has it now.
    """
    namespace = url.partition("namespace=")[2].partition("&")[0]
    with ExitStack() as stack:
        clients = {node.port: stack.enter_context(admin(node.url)) for node in cluster}
        ids = {port: at.execute_command("CLUSTER", "MYID") for port, at in clients.items()}
        any_node = clients[cluster[0].port]
        slot = any_node.execute_command("CLUSTER", "KEYSLOT", f"{{headway:{namespace}}}:facts")
        old = next(node for node in cluster if clients[node.port].dbsize() and has(node, slot))
        new = next(node for node in cluster if node is not old)
        source, target = clients[old.port], clients[new.port]
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[old.port])
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[new.port])
        while keys := source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 2):
            source.execute_command("MIGRATE", "127.0.0.1", new.port, "", 0, 5_000, "KEYS", *keys)
        for at in (target, source, *clients.values()):
            at.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[new.port])
    return old, new


def has(node: RedisServer, slot: int) -> bool:
    """Return whether a node has keys of a slot."""
    with admin(node.url) as at:
        return bool(at.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot))


async def test_namespace_that_moves_to_another_node_keeps_working(
    cluster: Cluster,
) -> None:
    url = new_url(cluster)
    app = hw.App(url)
    done: list[int] = []

    @app.job(key="{n}", gates=[hw.Slots("lines", 3)])
    async def work(n: int) -> None:
        done.append(n)

    async def send(numbers: range) -> None:
        for n in numbers:
            while True:
                try:
                    await app.send_async(work, n=n)
                except (OutcomeUnknown, StoreUnavailable):
                    await pause(0.02)
                else:
                    break

    async with app:
        workers = [app.worker(concurrency=3) for _ in range(2)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await send(range(EACH))
        later = asyncio.create_task(send(range(EACH, 2 * EACH)))
        old, new = await asyncio.to_thread(move_slot, url, cluster)
        await later
        async with asyncio.timeout(LIMIT):
            while (await app.store.read(StatsQuery())).counts.get("succeeded") != 2 * EACH:
                await pause(0.02)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
        assert (await app.store.read(AuditQuery())).differences == ()
    assert sorted(done) == list(range(2 * EACH))
    assert old is not new
