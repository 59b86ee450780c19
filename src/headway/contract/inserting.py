"""Inserting jobs within the caller's own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from headway.contract.enqueue import Enqueued
from headway.core.job import NewJob


@runtime_checkable
class InsertsWithin(Protocol):
    """A store that shares a database with its callers.

    The one door through which a driver's connection comes in: the jobs exist if and only if the
    transaction that is open there commits. No lock is held that other callers need, so it may
    stay open for as long as it likes.
    """

    def enqueue_within(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As `Store.enqueue`, in the transaction that is open on a connection.

        Runs on the caller's thread. When it raises, the transaction is as it was before, and can
        go on. Waiting workers are notified after the commit if the owner of the connection can
        report it; otherwise they poll within seconds, or `wake` is called.

        Args:
            connection: to the store's database, not used for anything else meanwhile.
            jobs: as for enqueue.

        Returns:
            As `Store.enqueue`.

        Raises:
            InvalidValue: it is no such connection, or its transaction has failed already.
        """
        ...

    async def enqueue_within_async(
        self, connection: object, jobs: Sequence[NewJob]
    ) -> list[Enqueued]:
        """As `enqueue_within`, also for connections that are awaited."""
        ...

    def wake(self, lanes: Sequence[str]) -> None:
        """Notify waiting workers that such a transaction was committed.

        Args:
            lanes: in which; none for any.
        """
        ...
