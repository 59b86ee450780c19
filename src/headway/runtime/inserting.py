"""Sending many jobs in steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from headway.contract.extensions import InsertsWithin
from headway.contract.store import Sent, Store
from headway.core.errors import InvalidValue
from headway.core.job import MAX_BATCH, NewJob, check_made
from headway.runtime.timing import pause

Item = TypeVar("Item")


def inserts_within(store: Store) -> InsertsWithin:
    """Return the store, typed as one that can insert within a caller's transaction.

    Raises:
        InvalidValue: the store cannot do that.
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
"""Number of jobs created before the event loop gets a turn."""


def check_listed(jobs: Iterable[Item]) -> Iterable[Item]:
    """Return jobs unchanged.

    Raises:
        InvalidValue: they cannot be iterated.
    """
    if not isinstance(cast("object", jobs), Iterable):
        message = f"{jobs!r:.80} is not a list of jobs"
        raise InvalidValue(message, hint="pass what kind.make(...) returned")
    return jobs


def checked(jobs: Iterable[NewJob]) -> Iterator[NewJob]:
    """Yield the jobs unchanged, after checking up to `PART` together.

    Raises:
        InvalidValue: one of them is not a job; the parts before it were yielded.
    """
    for part in batches(check_listed(jobs), PART):
        if not {NewJob}.issuperset(map(type, part)):
            for job in part:
                check_made(job)
        yield from part


def batches(items: Iterable[Item], most: int = MAX_BATCH) -> Iterator[list[Item]]:
    """Split items into lists of at most this length."""
    left = iter(items)
    while batch := list(islice(left, most)):
        yield batch


async def send_in_steps(
    jobs: Iterable[Item],
    store: Callable[[list[Item], Callable[[], None] | None], Coroutine[Any, Any, list[Sent]]],
) -> list[Sent]:
    """Send jobs in steps of 1000, creating each step while the previous one is stored.

    Args:
        jobs: iterated while they are sent.
        store: stores a step. If another may follow, it gets a function to call, on any thread,
            when that should be created: at the latest, it is created once this one is stored.

    Returns:
        The replies of all steps, in order.

    Raises:
        Exception: whatever `store` or the iteration raised; the steps before it are stored.
    """
    loop = asyncio.get_running_loop()
    sent: list[Sent] = []
    step: list[Item] = []
    storing: asyncio.Task[list[Sent]] | None = None
    try:
        for part in batches(jobs, PART):
            step += part
            if len(step) == MAX_BATCH:
                if storing is not None:
                    sent += await storing
                ready = loop.create_future()
                storing = asyncio.create_task(store(step, partial(_from_thread, loop, ready)))
                step = []
                await asyncio.wait((storing, ready), return_when=asyncio.FIRST_COMPLETED)
            # Let the store and other tasks of this loop run.
            await pause(0)
        if storing is not None:
            sent += await storing
        return sent + await store(step, None) if step else sent
    except Exception:
        # A job could not be created. The step before it is already on its way to the store: wait
        # until it is stored, or raise its error instead.
        if storing is not None:
            await storing
        raise
    except BaseException:
        # Cancelled: the caller no longer waits for the store.
        if storing is not None:
            storing.cancel()
        raise


def _from_thread(loop: asyncio.AbstractEventLoop, ready: asyncio.Future[None]) -> None:
    def end() -> None:
        if not ready.done():
            ready.set_result(None)

    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(end)


@dataclass(frozen=True, slots=True)
class CancelledJob:
    """A job to create and cancel at once, because it was cancelled before it started."""

    job: NewJob
    reason: str


Importer = Callable[[Any], Iterable[NewJob | CancelledJob]]
"""Creates jobs from one row of a file; raises any exception to refuse the row."""
