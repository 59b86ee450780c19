"""A process that enqueues into one system and reports the rate."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from bench.systems.peer import Peer, Producer
from bench.systems.with_headway import HeadwayProducer
from bench.tally import WARM
from headway.runtime import event_loop

CHUNK = 1_000
FEW = 100


def produce(pipe: Connection, peer: Peer) -> None:
    """Open the queue of each URL received, and execute commands on it until None is received."""
    logging.disable(logging.ERROR)
    event_loop.run(_serve(pipe, peer))


async def _serve(pipe: Connection, peer: Peer) -> None:
    while (url := await asyncio.to_thread(pipe.recv)) is not None:
        await peer.prepare(url)
        async with peer.producer(url) as producer:
            pipe.send("open")
            while (command := await asyncio.to_thread(pipe.recv)) is not None:
                verb, *rest = command
                pipe.send(await _VERBS[verb](producer, *rest))
        pipe.send("closed")


async def one(producer: Producer, count: int) -> float:
    """Enqueue one by one, each awaited, after a warm-up; return jobs per second."""
    for _ in range(FEW):
        await producer.one(WARM)
    gc.collect()
    begin = time.perf_counter()
    for number in range(count):
        await producer.one(number)
    return count / (time.perf_counter() - begin)


async def many(producer: Producer, count: int) -> float:
    """Enqueue by the thousand; return jobs per second, including the time to create the jobs."""
    gc.collect()
    begin = time.perf_counter()
    for numbers in _chunks(count):
        await producer.many(numbers)
    return count / (time.perf_counter() - begin)


async def whole(producer: Producer, count: int) -> float:
    """Enqueue all jobs in one call; return jobs per second, as `many` does."""
    gc.collect()
    begin = time.perf_counter()
    await producer.many(range(count))
    return count / (time.perf_counter() - begin)


async def later(producer: Producer, count: int, due_at: int) -> None:
    """Enqueue jobs that are due at the same time, ms UTC."""
    for numbers in _chunks(count):
        await producer.later(numbers, due_at)


async def spread(producer: HeadwayProducer, count: int, due_at: int, step_ms: int) -> None:
    """Enqueue jobs of this engine that are due one after another."""
    for numbers in _chunks(count):
        await producer.spread(numbers, due_at, step_ms)


async def together(producer: HeadwayProducer, count: int) -> float:
    """Enqueue into this engine from many concurrent callers; return jobs per second."""
    gc.collect()
    return await producer.together(count)


async def pace(producer: Producer, count: int, every_ns: int) -> dict[int, int]:
    """Enqueue one at a time, evenly; return when each call returned, in monotonic ns."""
    sent: dict[int, int] = {}
    begin = time.monotonic_ns()
    for number in range(count):
        await asyncio.sleep(max(0.0, (begin + number * every_ns - time.monotonic_ns()) / 1e9))
        await producer.one(number)
        sent[number] = time.monotonic_ns()
    return sent


async def warm(producer: Producer) -> None:
    """Enqueue a job that is not counted."""
    await producer.one(WARM)


def _chunks(count: int) -> Iterator[range]:
    for at in range(0, count, CHUNK):
        yield range(at, min(count, at + CHUNK))


_VERBS: dict[str, Any] = {
    "one": one,
    "many": many,
    "whole": whole,
    "later": later,
    "spread": spread,
    "together": together,
    "pace": pace,
    "warm": warm,
}
