"""Three sentinels, a master and its replica: a failover during work."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis

import headway as hw
from headway.contract.views import AuditQuery, StatsQuery
from headway.core.errors import OutcomeUnknown, StoreChanged, StoreUnavailable
from headway.runtime.timing import pause
from tests.redis.admin import admin, claim, new_job, opened, settle
from tests.redis.sentinels import SERVICE, Sentinel
from tests.servers.fixtures import made
from tests.servers.redis import RedisServer

LIMIT = 240.0
EACH = 150

Watched = tuple[RedisServer, RedisServer, list[Sentinel]]


async def until(happens: Callable[[], object]) -> None:
    """Wait until the condition holds.

    Raises:
        TimeoutError: it does not hold in time.
    """
    async with asyncio.timeout(LIMIT):
        while not happens():
            await pause(0.02)


def is_master(server: RedisServer) -> bool:
    """Return whether a server reports being a master; a sentinel drops its clients on promotion."""
    try:
        with admin(server.url) as one:
            return one.info("replication")["role"] == "master"
    except redis.ConnectionError:
        return False


async def succeeded(app: hw.App, number: int) -> None:
    """Wait until this many jobs are settled.

    Raises:
        TimeoutError: fewer are settled in time.
    """
    async with asyncio.timeout(LIMIT):
        while (await app.store.read(StatsQuery())).counts.get("succeeded") != number:
            await pause(0.02)


@pytest.fixture
async def watched() -> Iterator[Watched]:
    """Yield a master, its replica, and three sentinels that know each other and both servers."""
    with ExitStack() as stack:
        master = stack.enter_context(made(RedisServer))
        replica = stack.enter_context(made(RedisServer))
        with admin(replica.url) as other:
            other.replicaof("127.0.0.1", master.port)
            await until(lambda: other.info("replication").get("master_link_status") == "up")
        sentinels = [stack.enter_context(Sentinel(master, quorum=2)) for _ in range(3)]
        for sentinel in sentinels:
            with admin(sentinel.url) as other:
                await until(lambda: knows_all(other))
        yield master, replica, sentinels


def knows_all(sentinel: object) -> bool:
    state = sentinel.sentinel_master(SERVICE)  # type: ignore[attr-defined]
    return state["num-other-sentinels"] == 2 and state["num-slaves"] == 1


def url_of(sentinels: list[Sentinel]) -> str:
    hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels)
    return f"redis+sentinel://{hosts}/{SERVICE}?namespace=n&patience_ms=20000"


async def test_workers_and_senders_continue_at_the_replica_and_lose_nothing_it_had(
    watched: Watched,
) -> None:
    master, replica, sentinels = watched
    app = hw.App(url_of(sentinels))
    done: Counter[int] = Counter()

    @app.job(key="{n}", gates=[hw.Slots("lines", 3)])
    async def work(n: int) -> None:
        done[n] += 1

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
        await succeeded(app, EACH)
        with admin(master.url) as at_master:
            # All settlements so far are on the replica; the master will not get the later ones.
            assert at_master.wait(1, 10_000) == 1
        later = asyncio.create_task(send(range(EACH, 2 * EACH)))
        master.kill()
        await later
        await succeeded(app, 2 * EACH)
        with admin(replica.url) as other:
            assert other.info("replication")["role"] == "master"
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
        assert (await app.store.read(AuditQuery())).differences == ()
    assert set(done.values()) == {1}


async def test_incomplete_replica_is_an_older_store_until_an_operator_continues(
    watched: Watched,
) -> None:
    master, replica, sentinels = watched
    store = opened(url_of(sentinels))
    first, lost = new_job(), new_job()
    await store.enqueue([first])
    with admin(master.url) as at_master, admin(replica.url) as at_replica:
        assert at_master.wait(1, 10_000) == 1
        # The replica is cut off, because its password for the master is wrong.
        at_replica.config_set("masterauth", "wrong")
        at_master.client_kill_filter(_type="replica", skipme=True)
        await until(lambda: at_replica.info("replication")["master_link_status"] == "down")
        await store.enqueue([lost])
        claimed = await claim(store)
        assert len(claimed.jobs) == 2
        master.kill()
        await until(lambda: is_master(replica))
    with pytest.raises(StoreChanged) as refused:
        await claim(store, 2)
    assert "--new-epoch" in refused.value.hint
    assert await store.suspicion() is not None
    # Sending still works, and new processes are refused as well.
    more = new_job()
    await store.enqueue([more])
    late = opened(url_of(sentinels))
    with pytest.raises(StoreChanged):
        await claim(late, 1)
    await store.new_epoch("the tester", "a fail-over that lost a moment")
    again = await claim(store, 3)
    assert {job.id for job in again.jobs} == {first.id, more.id}
    await settle(store, again)
    await store.close()
    await late.close()
