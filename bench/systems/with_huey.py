"""huey on SQLite with an fsync for each commit, at its best setting here: one thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path

from huey import SqliteHuey

from bench.child import Child, child
from bench.tally import Delivered, Starts, Tally

NAME = "huey"
Handler = Callable[[int], None]


def open_queue(folder: Path, handler: Handler) -> tuple[SqliteHuey, Callable[..., object]]:
    huey = SqliteHuey("bench", filename=str(folder / "huey.db"), fsync=True, results=False)

    @huey.task(name="noop")
    def noop(number: int) -> None:
        handler(number)

    return huey, noop


def _nothing(number: int) -> None:
    del number


def enqueue_one(folder: Path, count: int) -> float:
    huey, noop = open_queue(folder, _nothing)
    begin = time.perf_counter()
    for number in range(count):
        noop(number)
    seconds = time.perf_counter() - begin
    huey.storage.close()
    return count / seconds


def drain(folder: Path, count: int) -> Delivered:
    enqueue_one(folder, count)
    with child(_drain, folder, count) as worker:
        return worker.receive()


def _drain(pipe: Connection, folder: Path, count: int) -> None:
    tally = Tally(count)
    _consume(folder, tally, pipe)
    pipe.send(tally.delivered())


@contextmanager
def worker(folder: Path, count: int, *, wall: bool = False) -> Generator[Child]:
    with child(_start, folder, count, wall) as running:
        running.receive()
        yield running


def _start(pipe: Connection, folder: Path, count: int, wall: bool) -> None:
    starts = Starts(count, time.time_ns if wall else time.monotonic_ns)
    _consume(folder, starts, pipe, ready=True)
    pipe.send(starts.seen)


def _consume(
    folder: Path, handler: Tally | Starts, pipe: Connection, *, ready: bool = False
) -> None:
    logging.disable(logging.CRITICAL)
    huey, _ = open_queue(folder, handler)
    consumer = huey.create_consumer(workers=1, periodic=False, check_worker_health=False)
    consumer.start()
    if ready:
        pipe.send("ready")
    handler.full.wait()
    consumer.stop(graceful=True)
    for _, thread in consumer.worker_threads:
        thread.join()


@contextmanager
def sender(folder: Path) -> Generator[Callable[[int], int]]:
    huey, noop = open_queue(folder, _nothing)

    def send(number: int) -> int:
        noop(number)
        return time.monotonic_ns()

    yield send
    huey.storage.close()


def schedule(folder: Path, count: int, due_at: int) -> None:
    """Enqueues jobs that are due at one moment, in ms UTC."""
    huey, noop = open_queue(folder, _nothing)
    eta = datetime.fromtimestamp(due_at / 1000)  # noqa: DTZ006  (huey takes local time)
    for number in range(count):
        huey.enqueue(noop.s(number, eta=eta))  # type: ignore[attr-defined]  # made by the decorator
    huey.storage.close()
