"""procrastinate on PostgreSQL. Done jobs are deleted; LISTEN and NOTIFY wake its worker."""

# pyright: basic, reportArgumentType=false, reportMissingTypeArgument=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from procrastinate import App, PsycopgConnector
from procrastinate.tasks import Task

from bench.systems.peer import Control, Peer, Producer
from bench.tally import Handler, unseen
from headway.runtime import event_loop


class ProcrastinateProducer(Producer):
    def __init__(self, noop: Task, locks: int) -> None:
        self.noop = noop
        self.locks = locks

    async def one(self, number: int) -> None:
        await self.noop.defer_async(number=number)

    async def many(self, numbers: Sequence[int]) -> None:
        if self.locks:
            # All jobs of a batch share one lock.
            for number in numbers:
                job = self.noop.configure(lock=str(number % self.locks))
                await job.defer_async(number=number)
            return
        await self.noop.batch_defer_async(*({"number": number} for number in numbers))

    async def later(self, numbers: Sequence[int], due_at: int) -> None:
        moment = datetime.fromtimestamp(due_at / 1000, UTC)
        deferred = self.noop.configure(schedule_at=moment)
        await deferred.batch_defer_async(*({"number": number} for number in numbers))


class ProcrastinateOnPostgres(Peer):
    name = "procrastinate"
    store = "postgres"
    jobs = 20
    poll_s = 0.5
    setting = f"{jobs} jobs at once, done jobs deleted, polls due ones every {poll_s} s"
    bulk = True
    slow = True
    waits = True
    keyed = True

    def open(self, url: str, handler: Handler) -> tuple[App, Task]:
        app = App(connector=PsycopgConnector(conninfo=url, min_size=2, max_size=max(4, self.jobs)))

        @app.task(name="noop")
        async def noop(number: int) -> None:
            if self.seconds:
                await asyncio.sleep(self.seconds)
            handler(number)

        return app, noop

    async def prepare(self, url: str) -> None:
        app, _ = self.open(url, unseen)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncGenerator[Producer]:
        app, noop = self.open(url, unseen)
        async with app.open_async():
            yield ProcrastinateProducer(noop, self.locks)

    def consume(self, url: str, handler: Handler, control: Control) -> None:
        async def work() -> None:
            app, _ = self.open(url, handler)
            async with app.open_async():
                control.start()
                await app.run_worker_async(
                    concurrency=self.places or self.jobs,
                    delete_jobs="successful",
                    fetch_job_polling_interval=self.poll_s,
                    install_signal_handlers=False,
                )

        event_loop.run(work())
