"""The app: what a program declares, and the store in which its jobs live."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Unpack

from headway.contract.enqueue import Enqueued
from headway.contract.inserting import InsertsWithin
from headway.contract.signals import SignalReply
from headway.contract.views import LanesQuery
from headway.core.errors import AccessError, UnknownGate
from headway.core.job import NewJob
from headway.core.naming import did_you_mean
from headway.runtime import event_loop
from headway.runtime.batches import batches
from headway.runtime.kind import Kind
from headway.runtime.sent import Sent
from headway.runtime.signals import SignalOptions, read_signal
from headway.runtime.sources.sourcing import Sourcing
from headway.runtime.store_owner import StoreOwner
from headway.runtime.within import inserts_within
from headway.runtime.worker.served import Lanes, read_lanes
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import WorkerOptions

_log = logging.getLogger("headway.worker")


class App(StoreOwner):
    """A program's kinds of work, and the store that they live in."""

    # ---------------------------------------------------------------------------------- jobs

    def send(self, kind: Kind | str, /, *, connection: object = None, **given: Any) -> Sent:  # noqa: ANN401  (checked by the kind)
        """Makes a job; when this returns, it is stored.

        Args:
            kind: a kind or its name.
            connection: to the store's database: then the job exists if and only if the
                transaction that is open there commits. Of psycopg 3, SQLAlchemy or Django.
            given: the handler's arguments, and the options of `Kind.make`.

        Returns:
            Its id, and whether this call made it.

        Raises:
            UnknownKind: this app has no such kind.
            InvalidValue: the store cannot insert within this connection's transaction.
            CallerError: an argument or option is refused, see `Kind.make` and `Store.enqueue`.
            StoreError: the store cannot do it now.
        """
        job = self.kind(kind).make(**given)
        if connection is not None:
            return self._enqueue_within(connection, [job])[0]
        return self._wait_for(self._enqueue([job]))[0]

    async def send_async(
        self,
        kind: Kind | str,
        /,
        *,
        connection: object = None,
        **given: Any,  # noqa: ANN401  (checked by the kind)
    ) -> Sent:
        """As `send`, for callers that can await; the connection may be one that is awaited."""
        return (await self._enqueue([self.kind(kind).make(**given)], connection))[0]

    def send_many(self, jobs: Iterable[NewJob], *, connection: object = None) -> list[Sent]:
        """Makes many jobs, in steps of 1000; each step is stored whole or not at all.

        Args:
            jobs: from a kind's `make`.
            connection: as for `send`; then all of them, or none.

        Returns:
            For each job, in this order, its id and whether this call made it.

        Raises:
            InvalidValue: the store cannot insert within this connection's transaction.
            CallerError: a step is refused; those before it are stored.
            StoreError: the store cannot do it now; those before it are stored.
        """
        if connection is None:
            return self._wait_for(self.send_many_async(jobs))
        steps = (self._enqueue_within(connection, batch) for batch in batches(jobs))
        return [sent for step in steps for sent in step]

    async def send_many_async(
        self, jobs: Iterable[NewJob], *, connection: object = None
    ) -> list[Sent]:
        """As `send_many`, for callers that can await.

        Raises:
            InvalidValue: one of them is no job; those of the batches before it are stored.
        """
        sent: list[Sent] = []
        for batch in batches(jobs):
            sent += await self._enqueue(batch, connection)
        return sent

    def wake(self, *lanes: str) -> None:
        """Tells waiting workers that a transaction in which jobs were sent has committed.

        Without it they look within seconds. Sessions of SQLAlchemy and Django's connections do
        this by themselves.

        Args:
            lanes: of the jobs; any lane if none are named.
        """
        store = self.store
        if isinstance(store, InsertsWithin):
            store.wake(lanes)

    def signal(self, key: str, *, event: str, **options: Unpack[SignalOptions]) -> SignalReply:
        """Tells what the outside world says about a job that awaits it.

        Args:
            key: the job's reference, or a key that it is known as.
            event: the event's id; each is applied once.
            options: see `SignalOptions`.

        Returns:
            What became of it.

        Raises:
            InvalidValue: the signal says nothing or too much, or a value is not understood.
            PayloadTooLarge: the body is above the limit.
            StoreError: the store cannot do it now.
        """
        return self._wait_for(self.store.signal(read_signal(key, event, options)))

    async def signal_async(
        self, key: str, *, event: str, **options: Unpack[SignalOptions]
    ) -> SignalReply:
        """As `signal`, for callers that can await."""
        return await self.store.signal(read_signal(key, event, options))

    # ------------------------------------------------------------------------------- workers

    async def _begin(self, lanes: Lanes) -> None:
        """Declare, and warn of lanes that neither the app nor its store knows: they may be slips.

        It is no error: a lane comes into being with its first job.
        """
        await self.declare()
        strange = {name for name, _ in read_lanes(lanes)} - set(self.lanes)
        if not strange:
            return
        # The token of a worker over HTTP may not be allowed to list lanes.
        with suppress(AccessError):
            known = {one.name for one in await self.store.read(LanesQuery())}
            for name in sorted(strange - known):
                meant = did_you_mean(name, known.union(self.lanes))
                hint = meant and f"; {meant}"
                _log.warning("the worker serves an unknown lane: lane=%r%s", name, hint)

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Makes a worker for this app's kinds.

        Args:
            options: see `WorkerOptions`; it serves all lanes of the app if none are given.

        Returns:
            The worker; `await worker.run()` works until `worker.stop()`.
        """
        given: WorkerOptions = {
            "lanes": self.lanes,
            "middleware": tuple(self._middleware),
            "on_failure": tuple(self._on_failure),
            "timing": self._timing,
            "before": self.declare,
        }
        if "lanes" in options:
            given["before"] = partial(self._begin, options["lanes"])
        if self.sources:
            given |= self._sourced()
        lease_ms = self._declaration.shortest_lease_ms(self.lanes)
        if lease_ms is not None:
            given["lease"] = f"{lease_ms}ms"
        return Worker(self.store, self.kinds, **{**given, **options})

    async def look_at_sources(self) -> None:
        """Brings the store in line with the app's sources, as workers do now and then.

        Raises:
            InvalidValue: a source gave something that is no job with a key.
            CallerError: a job was refused; what came before it is made.
            StoreError: the store cannot do it now.
        """
        sourcing = self._sourcing()
        await self.declare()
        await sourcing.begin()
        for source in self.sources.values():
            await sourcing.look(source)

    def _sourcing(self) -> Sourcing:
        return Sourcing(
            self.store,
            tuple(self.sources.values()),
            self._declare_anew,
            timing=self._timing,
            name=self._declaration.author,
        )

    def _sourced(self) -> WorkerOptions:
        """What a worker must mind where an application's own tables are the truth."""
        sourcing = self._sourcing()

        async def before() -> None:
            await self.declare()
            await sourcing.begin()

        duties = tuple(partial(sourcing.run, source) for source in self.sources.values())
        return {"before": before, "rebuild": sourcing.rebuild, "duties": duties}

    def run(self, **options: Unpack[WorkerOptions]) -> None:
        """Works until SIGTERM or Ctrl-C; a second one does not wait for handlers.

        A store that is away when it starts is tried again, as `reach` does.

        Args:
            options: as for `worker`.
        """
        event_loop.run(self._work(options))

    async def _work(self, options: WorkerOptions) -> None:
        await self.reach()
        worker = self.worker(**options)
        event_loop.on_signals(lambda now: worker.stop(now=now))
        try:
            await worker.run()
        finally:
            await self.close_async()

    # ------------------------------------------------------------------------------ internals

    async def _enqueue(self, jobs: list[NewJob], connection: object = None) -> list[Sent]:
        await self.declare()
        try:
            replies = await self._insert(jobs, connection)
        except UnknownGate:
            # The store may have been lost since it was told of the gates.
            if not self._declaration.forget():
                raise
            await self.declare()
            replies = await self._insert(jobs, connection)
        return [Sent(*reply) for reply in replies]

    async def _insert(self, jobs: list[NewJob], connection: object) -> list[Enqueued]:
        if connection is None:
            return await self.store.enqueue(jobs)
        return await inserts_within(self.store).enqueue_within_async(connection, jobs)

    def _enqueue_within(self, connection: object, jobs: list[NewJob]) -> list[Sent]:
        # On the caller's thread: the connection is its own.
        store = inserts_within(self.store)
        self._wait_for(self.declare())
        try:
            replies = store.enqueue_within(connection, jobs)
        except UnknownGate:
            if not self._declaration.forget():
                raise
            self._wait_for(self.declare())
            replies = store.enqueue_within(connection, jobs)
        return [Sent(*reply) for reply in replies]
