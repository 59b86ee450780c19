"""This engine: an app with its defaults on any store, and real worker processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection

import headway as hw

# An App imports its store and its worker lazily. They are imported here, as the peers' modules
# import theirs, so that the measurement does not include it.
import headway.runtime.worker.worker
import headway.stores.redis.store  # noqa: F401
from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler, unseen
from headway.contract.views import StatsQuery
from headway.core.gates.spec import GateSpec
from headway.runtime import event_loop
from headway.runtime.kind import Kind
from headway.runtime.worker.worker_options import MOST_AHEAD

CALLERS = 32
AT_ONCE = 64
"""Number of concurrent hand-overs and signals."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLACES, GATED_PLACES = 100, 1_000


class HeadwayProducer(Producer):
    def __init__(self, app: hw.App, step: Kind, locks: int = 0) -> None:
        self.app = app
        self.step = step
        self.locks = locks

    async def one(self, number: int) -> None:
        await self.app.send_async(self.step, number=number)

    async def many(self, numbers: Sequence[int]) -> None:
        locks = self.locks
        jobs = (
            {"number": one, "lock": one % locks} if locks else {"number": one} for one in numbers
        )
        await self.app.send_many_async(self.step.make(**job) for job in jobs)

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        due = EPOCH + timedelta(milliseconds=due_at)
        await self.app.send_many_async(self.step.make(number=number, due=due) for number in numbers)

    async def spread(self, numbers: Sequence[int], due_at: int, step_ms: int) -> None:
        """Enqueue jobs that are due `step_ms` apart."""
        due = EPOCH + timedelta(milliseconds=due_at)
        await self.app.send_many_async(
            self.step.make(number=number, due=due + timedelta(milliseconds=step_ms * number))
            for number in numbers
        )

    async def together(self, count: int) -> float:
        """Enqueue from many concurrent callers; return jobs per second."""

        async def caller(first: int) -> None:
            for number in range(first, count, CALLERS):
                await self.app.send_async(self.step, number=number)

        begin = time.perf_counter()
        await asyncio.gather(*(caller(first) for first in range(CALLERS)))
        return count / (time.perf_counter() - begin)


class Headway(Peer):
    """The engine on one store.

    Args:
        store: `sqlite`, `postgres` or `redis`.
        gates: Gates of each job.
        places: Number of handlers at once.
        seconds: Seconds for which each handler waits.
        prefetch: Maximum number of prefetched jobs.
    """

    name = "headway"
    bulk = True
    keyed = True

    def __init__(
        self,
        store: str,
        *,
        gates: Sequence[GateSpec] = (),
        places: int = PLACES,
        seconds: float = 0,
        prefetch: int = MOST_AHEAD,
    ) -> None:
        self.store = store
        self.gates = gates
        self.places = places
        self.seconds = seconds
        self.prefetch = prefetch

    def open(self, url: str, handler: Handler) -> tuple[hw.App, Kind]:
        gates = [*self.gates, hw.Slots("lock:{lock}", 1)] if self.locks else self.gates
        return open_app(url, handler, gates, self.seconds)

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        app, step = self.open(url, unseen)
        # Declared here: otherwise the first enqueue would include it.
        async with app:
            yield HeadwayProducer(app, step, self.locks)

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        async def work() -> None:
            app, _ = self.open(url, handler)
            worker = app.worker(concurrency=self.places, prefetch=self.prefetch)
            control.on_stop(worker.stop)
            async with app:
                control.start()
                await worker.run()

        event_loop.run(work())


def open_app(
    url: str, handler: Handler, gates: Sequence[GateSpec] = (), seconds: float = 0
) -> tuple[hw.App, Kind]:
    app = hw.App(url, name="bench")

    @app.job(name="step", lane="bench", gates=gates)
    async def step(job: hw.Job, number: int, lock: int = 0) -> None:
        del job, lock
        if seconds:
            await asyncio.sleep(seconds)
        handler(number)

    return app, step


def one_wide_gate() -> list[GateSpec]:
    """Return a Slots that never fills."""
    return [hw.Slots("seats", 100_000)]


def wide_gates() -> list[GateSpec]:
    """Return a Slots, a Rate and a Pool that never fill, to measure their cost."""
    return [
        *one_wide_gate(),
        hw.Rate("pace", 10_000_000, per="1s"),
        hw.Pool("lines", {"one": 50_000, "two": 50_000}),
    ]


def enqueue_sync(pipe: Connection, url: str, count: int) -> None:
    """Send by the synchronous `app.send`; report jobs per second."""
    app, step = open_app(url, unseen)
    with app:
        begin = time.perf_counter()
        for number in range(count):
            app.send(step, number=number)
        pipe.send(count / (time.perf_counter() - begin))


def succeeded(url: str) -> int:
    """Return the store's count of succeeded jobs."""

    async def look() -> int:
        app, _ = open_app(url, unseen)
        async with app:
            stats = await app.store.read(StatsQuery())
        return stats.counts.get("succeeded", 0)

    return event_loop.run(look())


def fill(url: str, count: int) -> None:
    """Enqueue from this process."""

    async def work() -> None:
        app, step = open_app(url, unseen)
        async with app:
            await app.send_many_async(step.make(number=number) for number in range(count))

    event_loop.run(work())


def hand_over_and_signal(pipe: Connection, url: str, count: int) -> None:
    """Hand jobs over and end them by signals; report the rates of both per second."""

    async def work() -> None:
        app = hw.App(url, name="bench")
        begun, all_handed, handed_s = time.perf_counter(), asyncio.Event(), 0.0
        left = count

        @app.job(name="call", lane="calls", gates=[hw.Slots("phone:{number}", 1)])
        async def call(job: hw.Job, number: int) -> None:
            nonlocal left, handed_s
            await job.hand_over(f"call-{number}", timeout="1h")
            left -= 1
            if not left:
                handed_s = time.perf_counter() - begun
                all_handed.set()

        async def end(first: int) -> None:
            for number in range(first, count, AT_ONCE):
                await app.signal_async(f"call-{number}", event=f"end-{number}", final="succeeded")

        async with app:
            await app.send_many_async(call.make(number=number) for number in range(count))
            worker = app.worker(concurrency=AT_ONCE)
            begun, running = time.perf_counter(), asyncio.ensure_future(worker.run())
            await all_handed.wait()
            worker.stop()
            await running
            begun_signals = time.perf_counter()
            await asyncio.gather(*map(end, range(AT_ONCE)))
            pipe.send((count / handed_s, count / (time.perf_counter() - begun_signals)))

    event_loop.run(work())


def idle(pipe: Connection, url: str, workers: int) -> None:
    """Let workers wait in one process until a message arrives."""

    async def work() -> None:
        app, _ = open_app(url, unseen)
        running = [app.worker(concurrency=10) for _ in range(workers)]
        tasks: list[Awaitable[None]] = [asyncio.ensure_future(one.run()) for one in running]
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        for one in running:
            one.stop()
        await asyncio.gather(*tasks)
        await app.close_async()

    event_loop.run(work())
