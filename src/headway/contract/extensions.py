"""Abilities of some stores: send ahead, insert in a caller's transaction, move, be repaired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headway.contract.store import Sent, Store
from headway.core.job import NewJob


@runtime_checkable
class SendsAhead(Protocol):
    """A store whose server stores a batch while the caller creates the next one.

    Its thread and the caller's run one at a time, because of Python's global lock. A caller that
    creates jobs before the thread has sent its batch leaves the server without work meanwhile.
    """

    async def enqueue_ahead(self, jobs: Sequence[NewJob], sent: Callable[[], None]) -> list[Sent]:
        """Enqueue jobs as `Store.enqueue` does.

        Args:
            jobs: up to 1000.
            sent: called on any thread, perhaps repeatedly, once only the server has work to do;
                never if the call fails before that.
        """
        ...


@runtime_checkable
class InsertsWithin(Protocol):
    """A store that can insert jobs in a transaction of its caller.

    These are the only operations that take a driver's connection: the jobs exist if and only if
    the transaction that is open on it commits. They hold no lock that other callers need, so the
    transaction may stay open indefinitely.
    """

    def enqueue_within(self, connection: object, jobs: Sequence[NewJob]) -> list[Sent]:
        """Enqueue jobs as `Store.enqueue` does, in the transaction that is open on a connection.

        Runs on the caller's thread. If it raises, the transaction is unchanged, and can continue.
        Waiting workers are notified after the commit if the owner of the connection can report it;
        otherwise they find the jobs by polling within seconds, or when `wake` is called.

        Args:
            jobs: up to 1000.
            connection: connection to the store's database, not used for anything else meanwhile.

        Raises:
            InvalidValue: it is not such a connection, or its transaction has already failed.
        """
        ...

    async def enqueue_within_async(self, connection: object, jobs: Sequence[NewJob]) -> list[Sent]:
        """Do the same as `enqueue_within`, also for async connections."""
        ...

    def wake(self, lanes: Sequence[str]) -> None:
        """Notify waiting workers that such a transaction was committed.

        Args:
            lanes: lanes of the jobs; empty for all lanes.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportChunk:
    """A part of a store's content.

    Attributes:
        part: type of the rows, such as "jobs".
        rows: rows in MessagePack, in the same format for every store.
        size: number of rows.
        cursor: cursor of the next chunk; None after the last one.
    """

    part: str
    rows: bytes
    size: int
    cursor: str | None


@runtime_checkable
class Movable(Store, Protocol):
    """A store whose content can be copied to another."""

    async def export_chunk(self, cursor: str | None) -> ExportChunk:
        """Read a chunk of at most 1000 jobs or other rows, fewer if large; writes nothing.

        Workers and their leases, leaders' terms, and replies to requests of the last hour are not
        exported. Nothing else may use the store meanwhile.

        Args:
            cursor: cursor of this chunk, from the previous one; None for the first chunk.

        Raises:
            InvalidValue: the cursor is invalid.
        """
        ...

    async def import_chunk(self, chunk: ExportChunk) -> None:
        """Write a chunk into a store that was empty before the first chunk; all or nothing.

        A job that already exists is left unchanged, with all that belongs to it, so that an import
        can be repeated after a lost reply.

        Raises:
            InvalidValue: this version cannot read the chunk.
        """
        ...


REMEDY = "find out what was restored, flushed or replaced, then `headway doctor --new-epoch`"
"""What an operator must do about a suspect store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspicion:
    """Why claims are refused: a process found the store replaced or restored.

    Attributes:
        at: when it was found, in the store's time, ms.
        by: process that found it.
        reason: fact that contradicts an earlier one.
    """

    at: int
    by: str
    reason: str

    @property
    def message(self) -> str:
        """What is wrong, in one sentence."""
        return f"the store was replaced, or restored to an older state: {self.reason}"

    @property
    def hint(self) -> str:
        """The process that found it, and what to do."""
        return f"found by {self.by}; {REMEDY}"


@runtime_checkable
class Repairable(Protocol):
    """A store that outlives its processes, and can therefore be replaced or restored.

    A process that notices this claims nothing (StoreChanged) until a new epoch starts in the store,
    at a time later than everything that the process has seen of it before.
    """

    async def suspicion(self) -> Suspicion | None:
        """Return why claims are refused, if the store is not the one that was seen before.

        Returns:
            The first contradiction found; None while claims are served.
        """
        ...

    async def new_epoch(self, author: str, reason: str) -> int:
        """Start a new epoch, which fences all older runs, and record it in the trail."""
        ...

    async def reset_clock(self, author: str, reason: str) -> int:
        """Set the store's time back to its clock, in a new epoch, and record it in the trail.

        Returns:
            By how many milliseconds the time was set back.
        """
        ...
