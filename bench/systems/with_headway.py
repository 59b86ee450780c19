"""This engine: an app on a SQLite file with its defaults, and one real worker process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import headway as hw
from bench.child import Child, child
from bench.tally import Delivered, Starts, Tally
from headway.contract.views import StatsQuery
from headway.core.gates.spec import GateSpec
from headway.runtime import event_loop
from headway.runtime.kind import Kind

NAME = "headway"
CALLERS = 32
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Handler = Callable[[int], None]


def open_app(folder: Path, handler: Handler, gates: Sequence[GateSpec] = ()) -> tuple[hw.App, Kind]:
    app = hw.App(f"sqlite:///{folder / 'headway.db'}", name="bench")

    @app.job(name="step", lane="bench", gates=gates)
    async def step(job: hw.Job, number: int) -> None:
        del job
        handler(number)

    return app, step


def wide_gates() -> list[GateSpec]:
    """A Slots, a Rate and a Pool that let everything through: what is measured is their cost."""
    return [
        hw.Slots("seats", 100_000),
        hw.Rate("pace", 10_000_000, per="1s"),
        hw.Pool("lines", {"one": 50_000, "two": 50_000}),
    ]


def _nothing(number: int) -> None:
    del number


# ----------------------------------------------------------------------------------- enqueueing


@asynccontextmanager
async def opened(
    folder: Path, gates: Sequence[GateSpec] = ()
) -> AsyncGenerator[tuple[hw.App, Kind]]:
    app, step = open_app(folder, _nothing, gates)
    async with app:
        # The first enqueue declares; it is not what is measured.
        yield app, step


def enqueue_one(folder: Path, count: int) -> float:
    """Awaited, one after another."""

    async def work() -> float:
        async with opened(folder) as (app, step):
            begin = time.perf_counter()
            for number in range(count):
                await app.send_async(step, number=number)
            return count / (time.perf_counter() - begin)

    return event_loop.run(work())


def enqueue_sync(folder: Path, count: int) -> float:
    """By `app.send` from code that cannot await."""
    app, step = open_app(folder, _nothing)
    with app:
        begin = time.perf_counter()
        for number in range(count):
            app.send(step, number=number)
        return count / (time.perf_counter() - begin)


def enqueue_together(folder: Path, count: int) -> float:
    """Awaited by many callers at once."""

    async def work() -> float:
        async with opened(folder) as (app, step):

            async def caller(first: int) -> None:
                for number in range(first, count, CALLERS):
                    await app.send_async(step, number=number)

            begin = time.perf_counter()
            await asyncio.gather(*(caller(first) for first in range(CALLERS)))
            return count / (time.perf_counter() - begin)

    return event_loop.run(work())


def fill(
    folder: Path, count: int, gates: Sequence[GateSpec] = (), due: object = None, step_ms: int = 0
) -> float:
    """Enqueues in steps of 1,000; jobs a second, the making of the jobs included.

    Args:
        folder: of the database.
        count: jobs.
        gates: of each job.
        due: when all are due.
        step_ms: each job is due so much after the one before.
    """

    async def work() -> float:
        async with opened(folder, gates) as (app, step):
            begin = time.perf_counter()
            later = (lambda n: due + timedelta(milliseconds=n * step_ms)) if step_ms else None
            await app.send_many_async(
                step.make(number=number, due=later(number) if later else due)
                for number in range(count)
            )
            return count / (time.perf_counter() - begin)

    return event_loop.run(work())


def schedule(folder: Path, count: int, due_at: int, step_ms: int = 0) -> None:
    """Enqueues jobs that are due at one moment, in ms UTC, or one after another from then on."""
    fill(folder, count, due=EPOCH + timedelta(milliseconds=due_at), step_ms=step_ms)


@contextmanager
def sender(folder: Path) -> Generator[Callable[[int], int]]:
    """Enqueues one and says when the call returned, by the monotonic clock in ns."""
    loop = asyncio.new_event_loop()
    app, step = open_app(folder, _nothing)
    loop.run_until_complete(app.declare())

    def send(number: int) -> int:
        loop.run_until_complete(app.send_async(step, number=number))
        return time.monotonic_ns()

    yield send
    loop.run_until_complete(app.close_async())
    loop.close()


# --------------------------------------------------------------------------------------- working


def drain(folder: Path, count: int, gates: Sequence[GateSpec] = ()) -> Delivered:
    fill(folder, count, gates)
    return drain_filled(folder, count, gated=bool(gates))


def drain_filled(folder: Path, count: int, *, gated: bool = False) -> Delivered:
    with child(_drain, folder, count, gated) as worker:
        return worker.receive()


def _drain(pipe: Connection, folder: Path, count: int, gated: bool) -> None:
    async def work() -> Delivered:
        tally = Tally(count)
        app, _ = open_app(folder, tally, wide_gates() if gated else ())
        await _work(app, tally, concurrency=1_000 if gated else 100)
        stats = await app.store.read(StatsQuery())
        await app.close_async()
        seconds, lost, double = tally.delivered()
        # What the record says must be what the handlers saw.
        return Delivered(seconds, max(lost, count - stats.counts.get("succeeded", 0)), double)

    pipe.send(event_loop.run(work()))


@contextmanager
def worker(folder: Path, count: int, *, wall: bool = False) -> Generator[Child]:
    """A worker in its own process, ready; it sends each job's start, then ends."""
    with child(_start, folder, count, wall) as running:
        running.receive()
        yield running


def _start(pipe: Connection, folder: Path, count: int, wall: bool) -> None:
    async def work() -> None:
        starts = Starts(count, time.time_ns if wall else time.monotonic_ns)
        app, _ = open_app(folder, starts)
        await app.declare()
        pipe.send("ready")
        await _work(app, starts, concurrency=100)
        await app.close_async()
        pipe.send(starts.seen)

    event_loop.run(work())


async def _work(app: hw.App, handler: Tally | Starts, *, concurrency: int) -> None:
    worker = app.worker(concurrency=concurrency)
    handler.on_full = worker.stop
    await worker.run()


def idle(pipe: Connection, folder: Path, workers: int) -> None:
    """Lets workers wait in one process until it is told to end."""

    async def work() -> None:
        app, _ = open_app(folder, _nothing)
        running = [app.worker(concurrency=10) for _ in range(workers)]
        tasks: list[Awaitable[None]] = [asyncio.ensure_future(one.run()) for one in running]
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        for one in running:
            one.stop()
        await asyncio.gather(*tasks)
        await app.close_async()

    event_loop.run(work())
