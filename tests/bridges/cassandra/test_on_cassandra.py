"""The calendar on a real Cassandra."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from headway.bridges.cassandra.calendar import Calendar
from headway.bridges.cassandra.driver import CassandraLink
from headway.bridges.cassandra.link import PAGE, CassandraSettings, Cql, Values
from headway.bridges.cassandra.rows import MOST_ARGS, bucket_name, load_progress, minute_of
from headway.contract.operate import Acted
from headway.core.errors import IdConflict, InvalidValue, KeyConflict, StoreUnavailable
from headway.core.job import NewJob
from headway.core.state import State
from headway.testing.clock import FakeClock
from tests.bridges.cassandra.world import HOUR, LEASE_MS, MINUTE, World
from tests.servers.brokers.cassandra import GivenCassandra

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NOW = 1_900_000_000_000
"""In the future, because Cassandra expires rows by its own clock."""


def settings_of(address: str, **more: Any) -> CassandraSettings:
    host, _, port = address.rpartition(":")
    # Each test has its own tables; a separate keyspace for each would take seconds.
    given: dict[str, Any] = {
        "hosts": [host],
        "port": int(port),
        "keyspace": "headway_tests",
        "replication": 1,
        "calendar": f"c{uuid4().hex[:12]}",
        "shards": 2,
        "every": "5s",
    }
    return CassandraSettings(**{**given, **more})


@pytest.fixture
def address(cassandra_server: GivenCassandra) -> str:
    return cassandra_server.address


@pytest.fixture
async def link(address: str) -> AsyncIterator[CassandraLink]:
    one = CassandraLink(settings_of(address))
    await one.open()
    yield one
    await one.close()


@pytest.fixture
def world(link: CassandraLink) -> World:
    return World(link.settings, FakeClock(NOW), link)


async def left(world: World, jobs: list[NewJob]) -> int:
    """Return the number of rows in the buckets of these jobs."""
    buckets = {bucket_name(minute_of(job.due_at or 0)) for job in jobs}
    shards = range(world.settings.shards)
    found = await world.link.run_many(
        Cql.READ_BUCKET, [(bucket, shard) for bucket in buckets for shard in shards]
    )
    return sum(map(len, found))


async def test_jobs_are_stored_found_and_read_ahead(world: World) -> None:
    jobs = [world.job(HOUR + n, args=b'{"n": %d}' % n) for n in range(2 * PAGE + 300)]
    calendar = Calendar(world.link, world.store)
    assert all(one.created for one in await calendar.enqueue(jobs))
    assert not any(one.created for one in await calendar.enqueue(jobs[:10]))
    found = await calendar.find([job.id for job in jobs[:5]])
    assert [found[job.id].job for job in jobs[:5]] == jobs[:5]
    world.clock.advance(HOUR - 10 * MINUTE)
    reader = world.reader()
    await reader.round()
    assert await world.made() == len(jobs)
    assert await left(world, jobs) == 0
    assert await load_progress(world.link) == reader.progress
    assert reader.progress is not None
    assert reader.progress.late == 0


async def test_rows_of_any_size_are_written_together(world: World) -> None:
    # Cassandra refuses a batch of more than 50 KiB, but not a single row of that size.
    sizes = [10, MOST_ARGS - 9, 10, 3_000, 3_000, *[40] * 40, MOST_ARGS - 9]
    jobs = [
        world.job(HOUR + n, args=b'{"n":"%b"}' % (b"x" * (size - 8)))
        for n, size in enumerate(sizes)
    ]
    # The world's own calendar runs one statement at a time, so that it can be killed between them.
    calendar = Calendar(world.link, world.store)
    assert all(one.created for one in await calendar.enqueue(jobs))
    assert await left(world, jobs) == len(jobs)
    found = await calendar.find([job.id for job in jobs])
    assert [found[job.id].job for job in jobs] == jobs
    other = world.job(HOUR).changed(id=jobs[33].id)
    with pytest.raises(IdConflict):
        await calendar.enqueue([*(world.job(HOUR) for _ in range(33)), other])
    assert await left(world, jobs) == len(jobs)


async def test_keys_cancels_and_new_due_times(world: World) -> None:
    calendar = world.calendar()
    one, moved = world.job(HOUR, key="k"), world.job(2 * HOUR)
    await calendar.enqueue([one, moved])
    assert (await calendar.enqueue([world.job(3 * HOUR, key="k")]))[0].id == one.id
    with pytest.raises(KeyConflict):
        await calendar.enqueue([world.job(HOUR, key="k", kind="other")])
    assert (await calendar.cancel([one.id], "ada"))[0].answer is Acted.DONE
    assert not (await world.link.run(Cql.GET_INDEX, (["key 0  k"],))).rows
    await calendar.reschedule([moved.id], world.clock() + HOUR, "ada")
    world.clock.advance(2 * HOUR)
    await world.reader().round()
    view = await world.view(one)
    assert view is not None
    assert view.state is State.CANCELLED
    assert await world.made() == 2
    assert await left(world, [one, moved]) == 0


@pytest.mark.parametrize("off_ms", [-2_000, 2_000])
async def test_rows_written_during_the_read_arrive(world: World, off_ms: int) -> None:
    jobs = [world.job(18 * MINUTE + n * 5_000) for n in range(12)]
    await world.reader().round()
    await world.calendar().enqueue(jobs)
    world.clock.advance(4 * MINUTE)
    late: list[NewJob] = []
    real = world.link

    class Writing:
        settings = real.settings

        async def run(self, statement: Cql, values: Values = (), after: bytes | None = None) -> Any:
            found = await real.run(statement, values, after)
            if statement in {Cql.READ_BUCKET, Cql.DROP_BUCKET} and len(late) < 60:
                late.append(world.job(14 * MINUTE + len(late)))
                await world.lay(late[-1], world.clock() + off_ms)
            return found

        async def run_many(self, statement: Cql, each: Any) -> Any:
            return await real.run_many(statement, each)

    engine: Any = world.engine(off_ms=-off_ms)
    engine.link_ = Writing()
    world.clock.advance(LEASE_MS)
    reader = world.reader(engine)
    for _ in range(6):
        await reader.round()
        world.clock.advance(1_000)
    assert len(late) == 60
    assert await world.made() == len(jobs) + len(late)
    assert await left(world, [*jobs, *late]) == 0


async def test_missing_keyspace_is_named(address: str) -> None:
    link = CassandraLink(settings_of(address, keyspace="nowhere", replication=None))
    with pytest.raises(InvalidValue, match="there is no keyspace 'nowhere'"):
        await link.open()
    await link.close()


async def test_unreachable_cluster_refuses_and_is_found_again() -> None:
    link = CassandraLink(settings_of("127.0.0.1:1"))
    await link.open()
    with pytest.raises(StoreUnavailable):
        await load_progress(link)
    await link.close()
