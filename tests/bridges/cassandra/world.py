"""A calendar beside a store, with a clock that only tests move, and engines that can be killed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from headway.bridges.cassandra.calendar import Calendar, key_of
from headway.bridges.cassandra.link import CassandraSettings, Cql, Link, RowPage, Rows, Values
from headway.bridges.cassandra.reader import LEASE_MS, Reader
from headway.bridges.cassandra.rows import RowKey, place_of, row_of, write_stamp
from headway.contract.views import JobQuery, JobView, StatsQuery, StatsView
from headway.core.job import NewJob
from headway.runtime.timing import Timing
from headway.stores.memory.store import MemoryStore
from headway.testing.clock import START_AT, FakeClock
from tests.bridges.cassandra.fake_link import FakeLink

MINUTE = 60_000
HOUR = 60 * MINUTE
SETTINGS = CassandraSettings(hosts=["127.0.0.1"], shards=2, horizon="15m", margin="2m", every="5s")


class ByClock(Timing):
    """The monotonic clock of an engine, which follows the clock of the test."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def monotonic(self) -> float:
        return self.clock() / 1000


class Killed(BaseException):
    """The process was killed here."""


@dataclass
class Engine:
    """One process, which can be made to die at the nth seam, and whose clock can be off.

    There is a seam before and after each statement and each operation of the store.

    Attributes:
        dies_at: number of the seam at which it dies; None for never.
        off_ms: offset of the time that it reads from the store.
        seam: number of the next seam.
    """

    link_: Link
    store_: MemoryStore
    dies_at: int | None = None
    off_ms: int = 0
    seam: int = 0

    @property
    def settings(self) -> CassandraSettings:
        return self.link_.settings

    async def _do(self, work: Callable[[], Awaitable[Any]]) -> Any:
        self._step()
        done = await work()
        self._step()
        return done

    def _step(self) -> None:
        if self.dies_at is not None and self.seam >= self.dies_at:
            raise Killed
        self.seam += 1

    async def run(self, statement: Cql, values: Values = (), after: bytes | None = None) -> RowPage:
        return await self._do(lambda: self.link_.run(statement, values, after))

    async def run_many(self, statement: Cql, each: Iterable[Values]) -> list[Rows]:
        # One at a time, because a process may be killed between any two.
        return [(await self.run(statement, values)).rows for values in each]

    async def read(self, query: Any) -> Any:
        found = await self._do(lambda: self.store_.read(query))
        if isinstance(query, StatsQuery):
            assert isinstance(found, StatsView)
            return replace(found, now=found.now + self.off_ms)
        return found

    async def enqueue(self, jobs: Any) -> Any:
        return await self._do(lambda: self.store_.enqueue(jobs))

    async def act(self, request: Any) -> Any:
        return await self._do(lambda: self.store_.act(request))

    async def lead(self, role: str, holder: str, lease_ms: int) -> Any:
        return await self._do(lambda: self.store_.lead(role, holder, lease_ms))


@dataclass
class World:
    """A store, a Cassandra, and one clock for both."""

    settings: CassandraSettings = SETTINGS
    clock: FakeClock = field(default_factory=FakeClock)
    link: Any = None

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.link = self.link or FakeLink(self.settings)

    def engine(self, **more: Any) -> Engine:
        return Engine(self.link, self.store, **more)

    def calendar(self, engine: Engine | None = None) -> Calendar:
        one: Any = engine or self.engine()
        return Calendar(one, one)

    def reader(self, engine: Engine | None = None) -> Reader:
        one: Any = engine or self.engine()
        return Reader(one, one, ByClock(self.clock))

    def job(self, due_in: int, **more: Any) -> NewJob:
        return NewJob(
            **{"id": str(uuid4()), "kind": "work", "due_at": self.clock() + due_in, **more}
        )

    async def lay(self, job: NewJob, stamp_ms: int | None = None) -> RowKey:
        """Write a row that arrives now, whatever its timestamp."""
        assert job.due_at is not None
        place = place_of(job.id, job.due_at, self.settings.shards)
        stamp = write_stamp(self.clock() if stamp_ms is None else stamp_ms)
        await self.link.run(Cql.PUT_ROW, (*key_of(place), row_of(job), stamp))
        return place

    async def read_until_empty(self, reader: Reader | None = None) -> None:
        """Run an engine's reader until the horizon has passed every row."""
        one = reader or self.reader()
        self.clock.advance(LEASE_MS)
        assert await one.round()

    async def view(self, job: NewJob) -> JobView | None:
        return await self.store.read(JobQuery(id=job.id))

    async def made(self) -> int:
        """Return the number of jobs ever created in the store."""
        return (await self.store.read(StatsQuery())).totals.get("enqueued", 0)


__all__ = ["HOUR", "LEASE_MS", "MINUTE", "START_AT", "Engine", "Killed", "World"]
