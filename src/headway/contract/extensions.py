"""What only some stores can do: insert within a transaction, move content, be repaired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headway.contract.store import Sent
from headway.core.job import NewJob


@runtime_checkable
class InsertsWithin(Protocol):
    """A store that shares a database with its callers.

    The one door through which a driver's connection comes in: the jobs exist if and only if the
    transaction that is open there commits. No lock is held that other callers need, so it may
    stay open for as long as it likes.
    """

    def enqueue_within(self, connection: object, jobs: Sequence[NewJob]) -> list[Sent]:
        """As `Store.enqueue`, in the transaction that is open on a connection.

        Runs on the caller's thread. When it raises, the transaction is as it was before, and can
        go on. Waiting workers are notified after the commit if the owner of the connection can
        report it; otherwise they poll within seconds, or `wake` is called.

        Args:
            connection: to the store's database, not used for anything else meanwhile.

        Returns:
            As `Store.enqueue`.

        Raises:
            InvalidValue: it is no such connection, or its transaction has failed already.
        """
        ...

    async def enqueue_within_async(self, connection: object, jobs: Sequence[NewJob]) -> list[Sent]:
        """As `enqueue_within`, also for connections that are awaited."""
        ...

    def wake(self, lanes: Sequence[str]) -> None:
        """Notify waiting workers that such a transaction was committed.

        Args:
            lanes: in which; none for any.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportChunk:
    """A part of a store's content.

    Attributes:
        part: the type of its rows, such as "jobs".
        rows: MessagePack, the same for every store.
        size: how many rows.
        cursor: of the next chunk; None after the last.
    """

    part: str
    rows: bytes
    size: int
    cursor: str | None


@runtime_checkable
class Movable(Protocol):
    """A store whose content can be copied to another."""

    async def export_chunk(self, cursor: str | None) -> ExportChunk:
        """Read a chunk of at most 1000 jobs or other rows; writes nothing.

        Not exported are workers and their leases, terms of leaders, and replies to requests of
        the last hour. The store must be stopped meanwhile.

        Args:
            cursor: of the previous chunk; None for the first.

        Raises:
            InvalidValue: the cursor is invalid.
        """
        ...

    async def import_chunk(self, chunk: ExportChunk) -> None:
        """Write a whole chunk into a store that was empty before the first.

        A job that exists already stays as it is, with all that belongs to it, so that an import
        can be repeated after a lost reply.

        Raises:
            InvalidValue: this version cannot read the chunk.
        """
        ...


REMEDY = "find out what was restored, flushed or replaced, then `headway doctor --new-epoch`"
"""What an operator does about a store that is suspect."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspicion:
    """Why claims are refused: a process found the store replaced or restored.

    Attributes:
        at: when it was found, by the store's time, ms.
        by: the process that found it.
        reason: which fact contradicts an earlier one.
    """

    at: int
    by: str
    reason: str

    @property
    def message(self) -> str:
        """What is wrong, in a sentence."""
        return f"the store is another one, or an older one, than was seen before: {self.reason}"

    @property
    def hint(self) -> str:
        """The process that found it, and what to do."""
        return f"found by {self.by}; {REMEDY}"


@runtime_checkable
class Repairable(Protocol):
    """A store that outlives its processes, and can therefore be replaced or restored.

    A process that notices it claims nothing (StoreChanged) until a new epoch begins there, at a
    time later than everything that the process saw of the store before.
    """

    async def suspicion(self) -> Suspicion | None:
        """Return why claims are refused, if the store is not the one that was seen before.

        Returns:
            The first contradiction that was found; None while claims are served.
        """
        ...

    async def new_epoch(self, author: str, reason: str) -> int:
        """Begin a new epoch, which fences every older run; recorded on the trail.

        Returns:
            The epoch now.
        """
        ...

    async def reset_clock(self, author: str, reason: str) -> int:
        """Set the store's time back to its clock, in a new epoch; recorded on the trail.

        Returns:
            By how many ms the time went back.
        """
        ...
