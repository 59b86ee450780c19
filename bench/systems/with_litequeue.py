"""litequeue on SQLite, with synchronous=FULL instead of its NORMAL.

It has no worker: the loop is ours, and takes, does and finishes one message at a time, as its
documentation shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from litequeue import LiteQueue

from bench.child import Child, child
from bench.tally import Delivered, Starts, Tally

NAME = "litequeue"
POLL_S = 0.001


def open_queue(folder: Path) -> LiteQueue:
    queue = LiteQueue(folder / "lite.db")
    queue.conn.execute("PRAGMA synchronous = FULL")
    return queue


def enqueue_one(folder: Path, count: int) -> float:
    queue = open_queue(folder)
    begin = time.perf_counter()
    for number in range(count):
        queue.put(str(number))
    seconds = time.perf_counter() - begin
    queue.close()
    return count / seconds


def drain(folder: Path, count: int) -> Delivered:
    queue = open_queue(folder)
    with queue.transaction():
        for number in range(count):
            queue.put(str(number))
    queue.close()
    with child(_drain, folder, count) as worker:
        return worker.receive()


def _drain(pipe: Connection, folder: Path, count: int) -> None:
    tally = Tally(count)
    _work(open_queue(folder), tally)
    pipe.send(tally.delivered())


@contextmanager
def worker(folder: Path, count: int) -> Generator[Child]:
    open_queue(folder).close()
    with child(_start, folder, count) as running:
        running.receive()
        yield running


def _start(pipe: Connection, folder: Path, count: int) -> None:
    starts = Starts(count, time.monotonic_ns)
    queue = open_queue(folder)
    pipe.send("ready")
    _work(queue, starts)
    pipe.send(starts.seen)


def _work(queue: LiteQueue, handler: Tally | Starts) -> None:
    while not handler.full.is_set():
        message = queue.pop()
        if message is None:
            time.sleep(POLL_S)
            continue
        handler(int(message.data))
        queue.done(message.message_id)
    queue.close()


@contextmanager
def sender(folder: Path) -> Generator[Callable[[int], int]]:
    queue = open_queue(folder)

    def send(number: int) -> int:
        queue.put(str(number))
        return time.monotonic_ns()

    yield send
    queue.close()
