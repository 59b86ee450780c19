"""Where messages go: a batch is stored whole, but for those that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from headway.bridges.kafka.message import Incoming, JobReader
from headway.core.errors import BacklogFull, CallerError
from headway.core.job import NewJob
from headway.runtime.app import App
from headway.runtime.tracing import caused_by


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


T = TypeVar("T")


class Created(Protocol):
    """The result of storing what one message asks for."""

    @property
    def created(self) -> bool:
        """Whether it did not exist before."""
        ...


class Stored:
    """The result of storing a batch."""

    def __init__(self) -> None:
        self.created = 0
        self.unreadable: dict[int, CallerError] = {}

    def read(
        self, messages: Sequence[Incoming], read: Callable[[Incoming], T]
    ) -> list[tuple[int, T]]:
        """Return what messages ask for, with their indexes; set aside what cannot be read."""
        found: list[tuple[int, T]] = []
        for index, message in enumerate(messages):
            try:
                found.append((index, read(message)))
            except CallerError as error:
                self.unreadable[index] = error
        return found

    async def store(
        self,
        asked: Sequence[tuple[int, T]],
        store: Callable[[Sequence[T]], Awaitable[Iterable[Created]]],
    ) -> None:
        """Store a step; halve one that is refused, until what is refused stands alone.

        Raises:
            BacklogFull: a lane takes no more.
        """
        if not asked:
            return
        try:
            stored = await store([one for _, one in asked])
        except BacklogFull:
            raise
        except CallerError as error:
            if len(asked) == 1:
                self.unreadable[asked[0][0]] = error
                return
            half = len(asked) // 2
            await self.store(asked[:half], store)
            await self.store(asked[half:], store)
            return
        self.created += sum(one.created for one in stored)


class EnqueueSink:
    """Enqueues the job of each message, all jobs of a batch in one step."""

    def __init__(self, app: App, reader: JobReader) -> None:
        self._app = app
        self._reader = reader

    async def put(self, messages: Sequence[Incoming]) -> Put:
        """See `Sink.put`."""
        stored = Stored()
        # Off the loop: a schema may have to be fetched.
        found = await asyncio.to_thread(stored.read, messages, self._read)
        with caused_by({job.id: trace for _, (job, trace) in found if trace}):
            await stored.store([(n, job) for n, (job, _) in found], self._app.send_many_async)
        return stored

    def _read(self, message: Incoming) -> tuple[NewJob, str | None]:
        return self._reader.job(message), message.trace
