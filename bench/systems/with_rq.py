"""rq on Redis, with the simple worker, which does not fork for each job.

Results are not kept. Its scheduler, a separate process, moves due jobs once per second.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from redis import Redis
from rq import Queue, SimpleWorker

from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler

_handlers: list[Handler] = []


def noop(number: int) -> None:
    """Handle a job; rq finds it by name, so it must be a function of a module."""
    _handlers[0](number)


class RqProducer(Producer):
    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    async def one(self, number: int) -> None:
        self.queue.enqueue(noop, number, result_ttl=0)

    async def many(self, numbers: Sequence[int]) -> None:
        self.queue.enqueue_many(
            [self.queue.prepare_data(noop, (number,), result_ttl=0) for number in numbers]
        )

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        moment = datetime.fromtimestamp(due_at / 1000, UTC)
        for number in numbers:
            self.queue.enqueue_at(moment, noop, number, result_ttl=0)


class RqOnRedis(Peer):
    name = "rq"
    setting = "SimpleWorker, results not kept"
    bulk = True
    slow = True

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        connection = Redis.from_url(url)
        yield RqProducer(Queue("bench", connection=connection))
        connection.close()

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        _handlers[:] = [handler]
        connection = Redis.from_url(url)
        worker = SimpleWorker([Queue("bench", connection=connection)], connection=connection)
        worker.log_job_description = False
        control.start()
        worker.work(logging_level="CRITICAL", with_scheduler=True)
