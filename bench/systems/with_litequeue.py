"""litequeue on SQLite, with synchronous=FULL instead of its default NORMAL.

It has no worker. The loop here takes, runs and finishes one message at a time, as in its
documentation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from litequeue import LiteQueue

from bench.places.sqlite import file_beside
from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler

POLL_S = 0.001


class LiteQueueProducer(Producer):
    def __init__(self, queue: LiteQueue) -> None:
        self.queue = queue

    async def one(self, number: int) -> None:
        self.queue.put(str(number))

    async def many(self, numbers: Sequence[int]) -> None:
        with self.queue.transaction():
            for number in numbers:
                self.queue.put(str(number))


class LiteQueueOnSqlite(Peer):
    name = "litequeue"
    store = "sqlite"
    setting = "synchronous=FULL, our loop"
    bursts = False

    def open(self, url: str) -> LiteQueue:
        queue = LiteQueue(file_beside(url, "lite.db"))
        queue.conn.execute("PRAGMA synchronous = FULL")
        return queue

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        queue = self.open(url)
        yield LiteQueueProducer(queue)
        queue.close()

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        over = threading.Event()
        control.on_stop(over.set)
        queue = self.open(url)
        control.start()
        while not over.is_set():
            message = queue.pop()
            if message is None:
                time.sleep(POLL_S)
                continue
            handler(int(message.data))
            queue.done(message.message_id)
        queue.close()
