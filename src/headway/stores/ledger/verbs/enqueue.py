"""Enqueue: create jobs that do not exist yet."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.enqueue import Enqueued
from headway.core.errors import InvalidValue
from headway.core.job import MAX_BATCH, NewJob
from headway.stores.ledger.gatebook import GateBook
from headway.stores.ledger.insert import insert_new
from headway.stores.ledger.ledger import Ledger


def enqueue(ledger: Ledger, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """See `Store.enqueue`."""
    check_batch("enqueue", len(jobs))
    book = GateBook(ledger)
    replies = insert_new(ledger, book, jobs)
    book.save()
    return replies


def check_batch(what: str, n: int) -> None:
    """Check the size of a batch.

    Raises:
        InvalidValue: it is too large for one atomic step.
    """
    if n > MAX_BATCH:
        message = f"{what} of {n} items"
        raise InvalidValue(message, hint=f"at most {MAX_BATCH} at a time; send them in pages")
