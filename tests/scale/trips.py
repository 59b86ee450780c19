"""Count how often a PostgreSQL store waits for its server, and run the operations to be counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from headway import Rate, Slots
from headway.contract.claims import Claimed
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.outcomes import HandedOver, Outcome
from headway.contract.signals import Signal
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.job import MAX_BATCH, JobPolicy, NewJob, derived_id
from headway.runtime.timing import pause
from headway.stores.postgres.call_queue import CallQueue
from headway.stores.postgres.link import Link
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.store import PostgresStore
from headway.testing.clock import FakeClock
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.jobs import use_of

LANE = "calls"
LOCK = Slots("lock:{phone}", 1)
LINES = Slots("lines", 100_000)
ONE = Slots("one", 1)
PHONE = Slots("phone:{name}", 1)
PACE = Rate("pace:{phone}", 1, per="10s")


@dataclass(slots=True)
class Trips:
    """How often all connections together waited within one measurement."""

    n: int = 0


@contextmanager
def counting(wait: Callable[[], None] = lambda: None) -> Generator[Trips]:
    """Count the trips of every connection; each trip is also delayed, as on a slow network."""
    trips = Trips()
    run = Link.run

    def counted(self: Link, batch: Sequence[Any]) -> Any:
        trips.n += 1
        answers = run(self, batch)
        wait()
        return answers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "run", counted)
        yield trips


@dataclass(slots=True)
class Site:
    """An open store, its clock and a worker.

    Attributes:
        numbers: numbers that no job, phone or tenant has yet.
    """

    store: PostgresStore
    clock: FakeClock
    worker: PlayedWorker
    numbers: count[int] = field(default_factory=lambda: count(1))

    async def declare(self, *specs: GateSpec) -> None:
        items = tuple(DeclareGate(spec=spec) for spec in specs)
        await self.store.define(DefineRequest(items=items, author="ann", reason="a drill"))

    def new(
        self, *gates: GateUse, tenant: str = "acme", policy: JobPolicy | None = None, **rest: Any
    ) -> NewJob:
        return NewJob(
            id=derived_id("trip", next(self.numbers)),
            kind="dial",
            lane=LANE,
            tenant=tenant,
            gates=gates,
            policy=policy or JobPolicy(),
            **rest,
        )

    def use(self, spec: GateSpec, phone: int | None = None) -> GateUse:
        return use_of(spec, phone=str(next(self.numbers) if phone is None else phone))

    async def add(self, jobs: Sequence[NewJob]) -> None:
        for begin in range(0, len(jobs), MAX_BATCH):
            await self.store.enqueue(jobs[begin : begin + MAX_BATCH])

    async def take(self, n: int) -> list[Claimed]:
        taken: list[Claimed] = []
        while len(taken) < n:
            reply = await self.worker.ask(min(n - len(taken), MAX_BATCH), LANE)
            taken += reply.jobs
        return taken

    async def running(self, n: int, *specs: GateSpec) -> list[Claimed]:
        """Return running jobs, each with gates of its own."""
        await self.add([self.new(*(self.use(spec) for spec in specs)) for _ in range(n)])
        return await self.take(n)

    async def with_followers(self, n: int, followers: int = 1) -> list[Claimed]:
        """Return jobs that each hold a lock, with other jobs parked behind them."""
        uses = [self.use(LOCK) for _ in range(n)]
        for _ in range(1 + followers):
            await self.add([self.new(use) for use in uses])
        taken = await self.take(n)
        while (await self.worker.ask(1, LANE)).again:
            pass
        return taken

    async def awaiting(self, n: int, *specs: GateSpec) -> list[Claimed]:
        """Return jobs that were handed over, each under `key-<its id>`."""
        taken = await self.running(n, *specs)
        for begin in range(0, n, MAX_BATCH):
            await self.worker.settle(*(handed(job) for job in taken[begin : begin + MAX_BATCH]))
        return taken


def handed(job: Claimed) -> HandedOver:
    return HandedOver(job.id, job.run, key=f"key-{job.id}", timeout_ms=600_000)


def final(job: Claimed) -> Signal:
    return Signal(key=f"key-{job.id}", event=f"end-{job.id}")


async def at_once(queue: CallQueue, calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """Queue calls so that none is served before all wait: the queue's thread may still be awake."""
    tasks = [asyncio.ensure_future(one) for one in calls]
    with queue._turn:
        while len(queue._calls) < len(tasks):
            await pause(0)
    return await asyncio.gather(*tasks)


async def settle_at_once(made: Site, outcomes: Iterable[Outcome]) -> None:
    await at_once(made.store._turn_queue, (made.worker.settle(one) for one in outcomes))


async def signal_at_once(store: PostgresStore, events: Sequence[Signal]) -> list[Any]:
    return await at_once(store._turn_queue, (store.signal(event) for event in events))


@asynccontextmanager
async def site(url: str) -> AsyncGenerator[Site]:
    clock = FakeClock()
    store = PostgresStore(parse_url(url), clock)
    worker = PlayedWorker(store, "first")
    try:
        made = Site(store, clock, worker)
        await made.declare(LOCK, LINES, PACE, PHONE)
        await worker.beat()
        yield made
    finally:
        await store.close()
