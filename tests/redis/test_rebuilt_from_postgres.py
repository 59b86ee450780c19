"""A Redis that lost everything during calls is rebuilt from PostgreSQL; no lead is called twice."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from uuid import uuid4

import psycopg
import pytest
import redis

import headway as hw
from headway.contract.extensions import Repairable
from headway.contract.views import GatesQuery, JobsQuery
from headway.core.errors import StoreChanged
from tests.servers.fixtures import made
from tests.servers.postgres import GivenPostgres, PostgresServer
from tests.servers.redis import RedisServer

CHANNELS = 4
LEADS = 30


@pytest.fixture
def lost_server() -> Iterator[RedisServer]:
    """A separate Redis, because the test flushes it."""
    with made(RedisServer) as server:
        yield server


@dataclass
class World:
    """The outside world: the leads' table in PostgreSQL, and the leads on the phone."""

    link: psycopg.AsyncConnection
    table: str = field(default_factory=lambda: f"lead_{uuid4().hex}")
    dialled: Counter[int] = field(default_factory=Counter)
    talking: set[int] = field(default_factory=set)
    most: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, text: str, *values: object) -> psycopg.AsyncCursor:
        return await self.link.execute(text.format(lead=self.table).encode(), values)

    async def rows(self, state: str) -> list[tuple[int, str, object]]:
        where = "SELECT id, line, since FROM {lead} WHERE state = %s ORDER BY id"
        return await (await self.write(where, state)).fetchall()

    def dial(self, lead: int) -> None:
        self.dialled[lead] += 1
        self.talking.add(lead)
        self.most = max(self.most, len(self.talking))
        self.changed.set()

    async def hang_up(self, app: hw.App, lead: int) -> hw.SignalReply:
        self.talking.discard(lead)
        await self.write("UPDATE {lead} SET state = 'done' WHERE id = %s", lead)
        return await app.signal_async(f"call-{lead}", event=f"end-{lead}", final="succeeded")

    async def until(self, holds: object) -> None:
        async with asyncio.timeout(120):
            while not await holds():  # type: ignore[operator]
                self.changed.clear()
                # The condition may also read the store, and changes there set no event here.
                await hw.Timing().wait(self.changed, 0.05)


@pytest.fixture
async def world(
    fast_postgres_server: PostgresServer | GivenPostgres,
) -> AsyncIterator[World]:
    # One connection for all: one opened by a cancelled handler would never be closed.
    url = fast_postgres_server.url
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as link:
        yield World(link)


def declare(app: hw.App, world: World) -> None:
    lines = hw.Pool("lines", {"a": 1, "b": CHANNELS - 1})

    @app.job(gates=[lines], key="lead-{lead}", retry=hw.Backoff(base="100ms"))
    async def call(job: hw.Job, lead: int) -> None:
        line = job.permits["lines"]
        await world.write(
            "UPDATE {lead} SET state = 'calling', line = %s, since = now() WHERE id = %s",
            line,
            lead,
        )
        try:
            await job.hand_over(f"call-{lead}", timeout="30m")
        except BaseException:
            # The lead was not dialled, and the table must not say that it was.
            await world.write("UPDATE {lead} SET state = 'pending' WHERE id = %s", lead)
            raise
        world.dial(lead)

    @app.source(every="1s", rate=10_000)
    async def leads() -> AsyncIterator[hw.NewJob]:
        for lead, _, _ in await world.rows("pending"):
            yield call.make(lead=lead)

    @leads.in_flight
    async def calls() -> AsyncIterator[object]:
        for lead, line, since in await world.rows("calling"):
            yield hw.in_flight(
                call.make(lead=lead),
                known_as=f"call-{lead}",
                since=since,
                timeout="30m",
                members={"lines": line},
            )


async def changed(app: hw.App) -> bool:
    assert isinstance(app.store, Repairable)
    return await app.store.suspicion() is not None


async def test_lost_redis_is_rebuilt_during_calls_and_no_phone_is_called_twice(
    lost_server: RedisServer, world: World
) -> None:
    await world.write("CREATE TABLE {lead} (id int, state text, line text, since timestamptz)")
    await world.write(
        "INSERT INTO {lead} SELECT id, 'pending' FROM generate_series(1, %s) AS id", LEADS
    )
    apps = [hw.App(lost_server.url) for _ in range(2)]
    for app in apps:
        declare(app, world)
    workers = [app.worker(lease="5s") for app in apps]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    app = apps[0]

    async def busy() -> bool:
        return len(world.talking) == CHANNELS

    for _ in range(2 * CHANNELS):
        await world.until(busy)
        assert (await world.hang_up(app, min(world.talking))).answer == "applied"
    await world.until(busy)
    on_the_phone = set(world.talking)
    before = [worker.id for worker in workers]

    with redis.Redis.from_url(lost_server.url) as server:
        server.flushall()

    async def rebuilt() -> bool:
        # The other worker may have sent no call meanwhile, and continues unchanged.
        return [worker.id for worker in workers] != before and not await changed(app)

    await world.until(rebuilt)
    awaiting = (await app.store.read(JobsQuery(states=(hw.State.AWAITING,)))).rows
    assert {job.key for job in awaiting} == {f"lead-{lead}" for lead in on_the_phone}
    (gate,) = (await app.store.read(GatesQuery(names=("lines",)))).rows
    assert {member.name: member.used for member in gate.members} == {
        "lines/a": 1,
        "lines/b": CHANNELS - 1,
    }
    assert world.talking == on_the_phone

    async def over() -> bool:
        for lead in sorted(world.talking):
            assert (await world.hang_up(app, lead)).answer == "applied"
        return len(await world.rows("done")) == LEADS

    await world.until(over)
    for worker in workers:
        worker.stop()
    async with asyncio.timeout(120):
        await asyncio.gather(*tasks)
    assert world.dialled == Counter(range(1, LEADS + 1))
    assert world.most <= CHANNELS
    for app in apps:
        await app.close_async()
    await world.write("DROP TABLE {lead}")


async def test_redis_lost_while_a_source_is_read_is_rebuilt_and_the_source_read_again(
    lost_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    app = hw.App(lost_server.url)

    @app.job(gates=[hw.Slots("line", 1)], key="{number}")
    async def call(number: int) -> None:
        del number

    looks: list[int] = []

    @app.source(every="1h")
    async def table() -> AsyncIterator[hw.NewJob]:
        looks.append(len(looks))
        if len(looks) == 1:
            # The rebuild before this read found the store healthy.
            with redis.Redis.from_url(lost_server.url) as server:
                server.flushall()
        yield call.make(number=7)

    await app.declare()
    sync = app._source_sync()
    task = asyncio.create_task(sync.run(table))
    async with asyncio.timeout(120):
        while table.last is None:
            await hw.Timing().pause(0.02)
    task.cancel()
    assert (table.last.missing, table.last.error, len(looks)) == (1, "", 2)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    await app.close_async()


async def test_lost_redis_stops_the_claims_of_those_without_a_source(
    lost_server: RedisServer,
) -> None:
    app = hw.App(lost_server.url)

    @app.job()
    async def step() -> None: ...

    await app.send_async(step)
    worker = app.worker()
    task = asyncio.create_task(worker.run())
    with redis.Redis.from_url(lost_server.url) as server:
        async with asyncio.timeout(120):
            while not (await app.store.read(JobsQuery(states=(hw.State.SUCCEEDED,)))).rows:
                await hw.Timing().pause(0.02)
        server.flushall()
    await app.send_async(step)
    with pytest.raises(StoreChanged, match="doctor --new-epoch"):
        await task
    await app.close_async()
