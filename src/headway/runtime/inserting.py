"""How many jobs are sent in steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, cast

from headway.contract.extensions import InsertsWithin
from headway.contract.store import Sent, Store
from headway.core.errors import InvalidValue
from headway.core.job import MAX_BATCH, NewJob, check_made
from headway.runtime.timing import pause

Item = TypeVar("Item")


def inserts_within(store: Store) -> InsertsWithin:
    """The store, if it can insert within a caller's transaction.

    Raises:
        InvalidValue: it cannot.
    """
    if isinstance(store, InsertsWithin):
        return store
    message = f"a {type(store).__name__} cannot send within your transaction"
    hint = (
        "use a store in the same database, postgresql://...; or send after your commit, without"
        " connection=, with a key so that repeating it is safe"
    )
    raise InvalidValue(message, hint=hint)


PART = 100
"""How many jobs are made in one turn of an event loop."""


def checked(jobs: Iterable[NewJob]) -> Iterator[NewJob]:
    """Pass jobs on.

    Raises:
        InvalidValue: one of them is not a job; those before it were given.
    """
    if not isinstance(cast("object", jobs), Iterable):
        message = f"{jobs!r:.80} is not a list of jobs"
        raise InvalidValue(message, hint="pass what kind.make(...) returned")
    for job in jobs:
        check_made(job)
        yield job


def batches(items: Iterable[Item], most: int = MAX_BATCH) -> Iterator[list[Item]]:
    """Split items into lists of so many at most."""
    left = iter(items)
    while batch := list(islice(left, most)):
        yield batch


async def send_in_steps(
    jobs: Iterable[Item], store: Callable[[list[Item]], Coroutine[Any, Any, list[Sent]]]
) -> list[Sent]:
    """Send jobs in steps of 1000, one after another; each is made while the one before is stored.

    Args:
        jobs: iterated as they are sent.

    Returns:
        What `store` returned for each step, in one list.

    Raises:
        Exception: what `store` or the iteration raised; the steps before it are stored.
    """
    sent: list[Sent] = []
    step: list[Item] = []
    storing: asyncio.Task[list[Sent]] | None = None
    try:
        for part in batches(jobs, PART):
            step += part
            if len(step) == MAX_BATCH:
                if storing is not None:
                    sent += await storing
                storing = asyncio.create_task(store(step))
                step = []
            # The store and all others of this loop go on meanwhile.
            await pause(0)
        if storing is not None:
            sent += await storing
        return sent + await store(step) if step else sent
    except Exception:
        # A job could not be made: the step before has been sent, and is stored or fails by itself.
        if storing is not None:
            await storing
        raise
    except BaseException:
        # It was cancelled, so the caller no longer waits for the store.
        if storing is not None:
            storing.cancel()
        raise


@dataclass(frozen=True, slots=True)
class CalledOff:
    """A job that was cancelled before it began: it is created, then cancelled at once."""

    job: NewJob
    reason: str


Importer = Callable[[Any], Iterable[NewJob | CalledOff]]
"""Makes jobs of one row of a file; raises anything to refuse the row."""
