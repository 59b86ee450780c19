"""dramatiq on Redis, with 8 threads and a prefetch of 512 messages instead of its default of 16.

Its worker reads the prefetch from the environment when it is imported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler

os.environ["dramatiq_queue_prefetch"] = "512"  # noqa: SIM112  (its own name)

import dramatiq
from dramatiq.brokers.redis import RedisBroker

THREADS = 8


class DramatiqProducer(Producer):
    def __init__(self, noop: Callable[..., object]) -> None:
        self.noop = noop

    async def one(self, number: int) -> None:
        self.noop.send(number)  # type: ignore[attr-defined]  # an actor

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        # It takes a delay, and stores the resulting time.
        for number in numbers:
            delay = max(0, due_at - _now_ms())
            self.noop.send_with_options(args=(number,), delay=delay)  # type: ignore[attr-defined]  # as above


class DramatiqOnRedis(Peer):
    name = "dramatiq"
    setting = "8 threads, prefetch 512"

    def open(self, url: str, handler: Handler) -> tuple[RedisBroker, Callable[..., object]]:
        broker = RedisBroker(url=url)

        @dramatiq.actor(broker=broker, actor_name="noop")
        def noop(number: int) -> None:
            handler(number)

        return broker, noop

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        broker, noop = self.open(url, int)
        yield DramatiqProducer(noop)
        broker.close()

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        broker, _ = self.open(url, handler)
        control.start()
        dramatiq.Worker(broker, worker_threads=THREADS).start()
        threading.Event().wait()


def _now_ms() -> int:
    return dramatiq.common.current_millis()  # pyright: ignore[reportAttributeAccessIssue]
