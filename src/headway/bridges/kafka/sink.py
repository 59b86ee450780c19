"""Where messages go: a batch is stored whole, but for those that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from headway.bridges.kafka.message import Incoming, JobReader
from headway.core.errors import BacklogFull, CallerError
from headway.core.job import NewJob
from headway.runtime.app import App
from headway.runtime.tracing.causes import caused_by


class Put(Protocol):
    """The result of storing a batch."""

    @property
    def created(self) -> int:
        """Jobs that did not exist before."""
        ...

    @property
    def unreadable(self) -> Mapping[int, CallerError]:
        """Why a message was refused, by its index; all others are stored."""
        ...


class Sink(Protocol):
    """Stores what messages ask for. A system may bring one for its own format."""

    async def put(self, messages: Sequence[Incoming]) -> Put:
        """Store what messages ask for; when this returns, it is durable.

        A message may be put again, after a crash or a rebalance, and is stored once.

        Args:
            messages: up to 1000.

        Returns:
            The result.

        Raises:
            BacklogFull: a lane takes no more; some may be stored.
            StoreError: the store cannot do it now; some may be stored.
        """
        ...


class Stored:
    """The result of storing a batch."""

    def __init__(self) -> None:
        self.created = 0
        self.unreadable: dict[int, CallerError] = {}


class EnqueueSink:
    """Enqueues the job of each message, all jobs of a batch in one step."""

    def __init__(self, app: App, reader: JobReader) -> None:
        self._app = app
        self._reader = reader

    async def put(self, messages: Sequence[Incoming]) -> Put:
        """See `Sink.put`."""
        stored = Stored()
        # Off the loop: a schema may have to be fetched.
        jobs = await asyncio.to_thread(self._read, messages, stored)
        with caused_by({job.id: trace for _, job, trace in jobs if trace}):
            await self._enqueue([(index, job) for index, job, _ in jobs], stored)
        return stored

    def _read(
        self, messages: Sequence[Incoming], stored: Stored
    ) -> list[tuple[int, NewJob, str | None]]:
        found: list[tuple[int, NewJob, str | None]] = []
        for index, message in enumerate(messages):
            try:
                found.append((index, self._reader.job(message), message.trace))
            except CallerError as error:
                stored.unreadable[index] = error
        return found

    async def _enqueue(self, jobs: Sequence[tuple[int, NewJob]], stored: Stored) -> None:
        """Enqueue a step; halve one that is refused, until what is refused stands alone.

        Raises:
            BacklogFull: a lane takes no more.
        """
        if not jobs:
            return
        try:
            sent = await self._app.send_many_async([job for _, job in jobs])
        except BacklogFull:
            raise
        except CallerError as error:
            if len(jobs) == 1:
                stored.unreadable[jobs[0][0]] = error
                return
            half = len(jobs) // 2
            await self._enqueue(jobs[:half], stored)
            await self._enqueue(jobs[half:], stored)
            return
        stored.created += sum(one.created for one in sent)
