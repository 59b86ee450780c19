"""celery on Redis, in the solo pool, which is its fastest for no-op jobs.

Tasks are acknowledged early, which is the default, and have no results; gossip, mingle and
heartbeats between workers are off. Tasks with an ETA are held in the worker's memory.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from celery import Celery
from celery.exceptions import SecurityWarning

from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler

QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=CRITICAL")


class CeleryProducer(Producer):
    def __init__(self, noop: Callable[..., object]) -> None:
        self.noop = noop

    async def one(self, number: int) -> None:
        self.noop.delay(number)  # type: ignore[attr-defined]  # made by the decorator

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        eta = datetime.fromtimestamp(due_at / 1000, UTC)
        for number in numbers:
            self.noop.apply_async((number,), eta=eta)  # type: ignore[attr-defined]  # as above


class CeleryOnRedis(Peer):
    name = "celery"
    slow = True
    # Its due tasks start some 50 ms apart here, whatever the prefetch. No figure is reported until
    # it is known whether celery or a setting causes that.
    bursts = False
    prefetch = 128
    setting = f"solo pool, prefetch {prefetch}, results ignored"

    def open(self, url: str, handler: Handler) -> tuple[Celery, Callable[..., object]]:
        app = Celery("bench", broker=url)
        app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=self.prefetch,
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,
            broker_connection_retry_on_startup=False,
        )

        @app.task(name="noop")
        def noop(number: int) -> None:
            handler(number)

        return app, noop

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        app, noop = self.open(url, int)
        yield CeleryProducer(noop)
        app.close()

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        # It warns about running as root, which is usual in containers.
        warnings.simplefilter("ignore", SecurityWarning)
        app, _ = self.open(url, handler)
        control.start()
        app.worker_main(["--quiet", "worker", "--pool=solo", *QUIET])
