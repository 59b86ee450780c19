"""A SQLite store with many jobs, filled without metering and then opened under the meter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from headway.contract.claims import Claimed
from headway.contract.definitions import DeclareGate, DefineRequest, Item
from headway.contract.outcomes import Succeeded
from headway.contract.store import Store
from headway.contract.views import AuditQuery, StatsQuery
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.job import MAX_BATCH, NewJob, derived_id
from headway.stores import open_store
from headway.testing.clock import FakeClock
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.jobs import use_of
from tests.scale.meter import Meter

LANE = "calls"
HOUR_MS = 3_600_000


@dataclass(slots=True)
class LargeStore:
    """An open store and one of its workers.

    Attributes:
        store: the open store.
        clock: the clock that the store reads.
        meter: the meter that watches the store.
        worker: the first of the store's workers.
        numbers: numbers that no job has yet.
    """

    store: Store
    clock: FakeClock
    meter: Meter
    worker: PlayedWorker
    numbers: count[int] = field(default_factory=lambda: count(1))

    async def define(self, *items: Item) -> None:
        await self.store.define(DefineRequest(items=items, author="ann", reason="a drill"))

    async def declare(self, *specs: GateSpec) -> list[GateUse]:
        await self.define(*(DeclareGate(spec=spec) for spec in specs))
        return [use_of(spec, phone="1") for spec in specs]

    async def add(
        self,
        n: int,
        gates: Sequence[GateUse] = (),
        *,
        in_ms: int | None = None,
        lane: str = LANE,
        kind: str = "dial",
    ) -> None:
        """Enqueue jobs in batches; scheduled ones are due within the hour after `in_ms`."""
        left = n
        while left > 0:
            batch: list[NewJob] = []
            for _ in range(min(left, MAX_BATCH)):
                number = next(self.numbers)
                due_at = None
                if in_ms is not None:
                    due_at = self.clock() + in_ms + number * 7_919 % HOUR_MS
                batch.append(
                    NewJob(
                        id=derived_id("crowd", number),
                        kind=kind,
                        lane=lane,
                        args=b'{"number":%d}' % number,
                        gates=tuple(gates),
                        due_at=due_at,
                    )
                )
            await self.store.enqueue(batch)
            left -= len(batch)

    async def take(self, n: int = 1, lane: str = LANE) -> list[Claimed]:
        return await self.worker.take(n, lane)

    async def finish(self, jobs: Sequence[Claimed]) -> None:
        await self.worker.settle(*(Succeeded(job.id, job.run) for job in jobs))

    async def park_all(self, lane: str = LANE) -> None:
        """Claim until every job that finds a keyed gate full is parked there."""
        while (await self.worker.ask(1, lane)).again:
            pass

    async def counts(self) -> dict[str, int]:
        return (await self.store.read(StatsQuery())).counts

    async def audit(self) -> list[object]:
        """Return all differences that an audit finds."""
        found: list[object] = []
        cursor: str | None = None
        while True:
            page = await self.store.read(AuditQuery(cursor=cursor))
            found += page.differences
            cursor = page.cursor
            if cursor is None:
                return found


@asynccontextmanager
async def large_store(path: Path, clock: FakeClock | None = None) -> AsyncGenerator[LargeStore]:
    """Open a store under a meter; a store that was filled before may be opened again."""
    meter = Meter()
    clock = clock or FakeClock()
    with meter.watching():
        store = open_store(f"sqlite:///{path}?synchronous=normal", clock=clock)
        worker = PlayedWorker(store, "first")
        await worker.beat()
        try:
            yield LargeStore(store, clock, meter, worker)
        finally:
            await store.close()
