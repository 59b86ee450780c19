"""huey with its best settings: one thread, and no results.

On SQLite it runs with an fsync for each commit. On Redis its worker blocks for one job at a time.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from huey import RedisHuey, SqliteHuey
from huey.api import Huey

from bench.places.sqlite import file_beside
from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler


class HueyProducer(Producer):
    def __init__(self, huey: Huey, noop: Callable[[int], object]) -> None:
        self.huey = huey
        self.noop = noop

    async def one(self, number: int) -> None:
        self.noop(number)

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        eta = datetime.fromtimestamp(due_at / 1000)  # noqa: DTZ006  (huey takes local time)
        for number in numbers:
            self.huey.enqueue(self.noop.s(number, eta=eta))  # type: ignore[attr-defined]  # made by the decorator


class HueyOnRedis(Peer):
    name = "huey"
    store = "redis"
    setting = "1 thread, no results"

    def open(self, url: str, handler: Handler) -> tuple[Huey, Callable[[int], object]]:
        huey = self.connect(url)

        @huey.task(name="noop")
        def noop(number: int) -> None:
            handler(number)

        return huey, noop

    def connect(self, url: str) -> Huey:
        return RedisHuey("bench", url=url, results=False)

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        huey, noop = self.open(url, int)
        yield HueyProducer(huey, noop)
        huey.storage.close()

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        huey, _ = self.open(url, handler)
        consumer = huey.create_consumer(workers=1, periodic=False, check_worker_health=False)
        over = threading.Event()
        control.on_stop(over.set)
        control.start()
        consumer.start()
        over.wait()
        consumer.stop(graceful=True)
        for _, thread in consumer.worker_threads:
            thread.join()


class HueyOnSqlite(HueyOnRedis):
    store = "sqlite"

    def connect(self, url: str) -> Huey:
        path: Path = file_beside(url, "huey.db")
        return SqliteHuey("bench", filename=str(path), fsync=True, results=False)
