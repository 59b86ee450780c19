"""Faults under a working store on Redis: each is reported exactly, and fixed by a repeat."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.contract.outcomes import Verdict
from headway.core.errors import OutcomeUnknown, StoreChanged
from headway.testing.clock import FakeClock
from tests.redis.admin import admin, claim, new_job, new_url, opened, settle
from tests.servers.fixtures import made
from tests.servers.proxy import Proxy
from tests.servers.redis import GivenRedis, RedisServer
from tests.torture.every_verb import OPERATIONS, differences
from tests.torture.load import Load
from tests.torture.site import ALWAYS


@pytest.fixture(scope="module")
def way(redis_server: RedisServer | GivenRedis) -> Iterator[Proxy]:
    with Proxy(redis_server.url) as proxy:
        yield proxy


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(OPERATIONS))
async def test_operation_with_each_reply_lost_once_is_done_once(
    redis_server: RedisServer | GivenRedis, way: Proxy, name: str
) -> None:
    clocks = FakeClock(), FakeClock()
    undisturbed = opened(new_url(redis_server.url), clocks[0])
    disturbed = opened(new_url(way.url), clocks[1])
    found, raised = await differences(name, undisturbed, disturbed, clocks, way)
    await undisturbed.close()
    await disturbed.close()
    assert found == []
    assert OutcomeUnknown in raised


# ------------------------------------------------------------------------------- under a load


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that the test may kill, and that keeps everything it acknowledged."""
    with made(lambda: RedisServer(ALWAYS)) as server:
        yield server


@pytest.mark.slow
async def test_load_continues_after_the_server_was_killed_and_its_scripts_and_clients_dropped(
    own_server: RedisServer,
) -> None:
    with Proxy(own_server.url) as way, admin(own_server.url) as other:
        url = new_url(way.url)
        stores = [opened(url) for _ in range(3)]
        load = Load(stores)

        def kill_and_start() -> None:
            own_server.kill()
            own_server.start()

        faults = [
            kill_and_start,
            other.script_flush,
            lambda: other.client_kill_filter(_type="normal", skipme=True),
            way.reset,
            lambda: way.cut_after(200),
            lambda: way.lose_reply_to(b""),
        ]
        await load.run(faults * 2)
        way.resume()
        await load.check(stores[0])
        for store in stores:
            await store.close()


# --------------------------------------------------------------------------------- a power cut


def _log_of(server: RedisServer) -> Path:
    """Return the file to which the server appends its commands."""
    return max(server.folder.rglob("*.aof"), key=lambda path: path.stat().st_mtime_ns)


def _until_written(server: RedisServer) -> None:
    """Wait until everything acknowledged is in the file, which takes a while on a busy device."""
    with admin(server.url) as client:
        until = time.monotonic() + 30
        while client.info("persistence")["aof_buffer_length"]:
            assert time.monotonic() < until, "the log is never written"


async def test_power_failure_loses_unsynced_work_and_the_store_says_so() -> None:
    """`everysec` acknowledges before it syncs, so the last second of the log may be lost."""
    options = {"appendonly": "yes", "appendfsync": "everysec"}
    with made(lambda: RedisServer(options)) as server:
        clock = FakeClock()
        store = opened(new_url(server.url), clock)
        synced = [new_job() for _ in range(20)]
        await store.enqueue(synced)
        _until_written(server)
        kept = _log_of(server).stat().st_size
        clock.advance(900)
        lost = [new_job() for _ in range(20)]
        await store.enqueue(lost)
        claimed = await claim(store, n=5)
        server.kill()
        os.truncate(_log_of(server), kept)
        server.start()
        # No job is handed out that another worker may hold, until an operator has checked the
        # store.
        with pytest.raises(StoreChanged):
            await claim(store, request=2)
        assert await store.suspicion() is not None
        await store.new_epoch("ann", "the power was cut")
        assert [one.created for one in await store.enqueue(synced)] == [False] * 20
        assert [one.created for one in await store.enqueue(lost)] == [True] * 20
        assert set(await settle(store, claimed)) == {Verdict.LOST}
        assert len((await claim(store, request=3, n=100)).jobs) == 40
        await store.close()


async def test_killing_only_the_server_loses_nothing_though_it_syncs_each_second() -> None:
    options = {"appendonly": "yes", "appendfsync": "everysec"}
    with made(lambda: RedisServer(options)) as server:
        store = opened(new_url(server.url))
        jobs = [new_job() for _ in range(20)]
        await store.enqueue(jobs)
        server.kill()
        server.start()
        assert {one.id for one in (await claim(store, n=100)).jobs} == {one.id for one in jobs}
        await store.close()
