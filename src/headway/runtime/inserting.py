"""What a send answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from headway.contract.extensions import InsertsWithin
from headway.contract.store import Store
from headway.core.errors import InvalidValue
from headway.core.job import MAX_BATCH, NewJob


class Sent(NamedTuple):
    """The job that exists now.

    Attributes:
        id: its id: a new job's, or that of the one that has the key.
        created: whether this call made it.
    """

    id: str
    created: bool


def inserts_within(store: Store) -> InsertsWithin:
    """The store, if it can insert within a caller's transaction.

    Raises:
        InvalidValue: it cannot.
    """
    if isinstance(store, InsertsWithin):
        return store
    message = f"a {type(store).__name__} cannot send within a transaction of yours"
    hint = (
        "use a store in the same database, postgresql://...; or send after your commit, without"
        " connection=, with a key so that repeating it is safe"
    )
    raise InvalidValue(message, hint=hint)


PART = 100
"""How many jobs are made in one turn of an event loop."""


def batches(jobs: Iterable[NewJob], most: int = MAX_BATCH) -> Iterator[list[NewJob]]:
    """Split jobs into lists of so many at most; MAX_BATCH divides into them.

    Raises:
        InvalidValue: one of them is not a job; the steps before it were given.
    """
    if not isinstance(cast("object", jobs), Iterable):
        message = f"{jobs!r:.80} is not a list of jobs"
        raise InvalidValue(message, hint="pass what kind.make(...) gave")
    batch: list[NewJob] = []
    for job in jobs:
        if not isinstance(cast("object", job), NewJob):
            message = f"{job!r:.80} is not a job"
            raise InvalidValue(message, hint="pass what kind.make(...) gave")
        batch.append(job)
        if len(batch) == most:
            yield batch
            batch = []
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class CalledOff:
    """A job that was cancelled before it began: it is created, then cancelled at once."""

    job: NewJob
    reason: str


Importer = Callable[[Any], Iterable[NewJob | CalledOff]]
"""Makes jobs of one row of a file; raises anything to refuse the row."""
