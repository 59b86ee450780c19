"""Calls: what an event loop asks of a thread of the store, and how it is told the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, cast

from headway.core.job import NewJob
from headway.stores.sqlite.ledger import SqliteLedger
from headway.stores.sqlite.timing import monotonic

Answer = TypeVar("Answer")

BULK = 16
"""An enqueue of more jobs is bulk."""


class Call(Generic[Answer]):
    """One operation that is asked for.

    Attributes:
        loop: where its caller waits.
        future: what its caller waits for.
        verb: what to do within a step.
        jobs: of an enqueue, what it inserts, so that several can be done as one; else None.
        bulk: it may take long, and lets those behind it go first.
        takes_room: it is refused while the device is nearly full.
        asked_at: by the monotonic clock.
        answer: of the verb.
        error: what to raise instead.
        dropped: it was refused already, and must not be begun.
    """

    __slots__ = (
        "answer",
        "asked_at",
        "bulk",
        "dropped",
        "error",
        "future",
        "jobs",
        "loop",
        "takes_room",
        "verb",
    )

    def __init__(
        self,
        verb: Callable[[SqliteLedger], Answer],
        *,
        jobs: Sequence[NewJob] | None = None,
        takes_room: bool = False,
    ) -> None:
        self.verb = verb
        self.jobs = jobs
        self.takes_room = takes_room
        self.bulk = jobs is not None and len(jobs) > BULK
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Answer] = self.loop.create_future()
        self.asked_at = monotonic()
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.dropped = False

    def tell(self) -> None:
        """Resolves the future; in the loop's own thread."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("Answer", self.answer))


AnyCall = Call[Any]


def deliver(calls: Iterable[AnyCall]) -> None:
    """Tells each caller its answer, from any thread, waking each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[AnyCall]] = {}
    for call in calls:
        loops.setdefault(call.loop, []).append(call)
    for loop, group in loops.items():
        try:
            loop.call_soon_threadsafe(_tell_all, group)
        except RuntimeError:
            # The loop is closed: nobody waits there any more.
            continue


def _tell_all(calls: Sequence[AnyCall]) -> None:
    for call in calls:
        call.tell()


def fail(calls: Iterable[AnyCall], error: BaseException) -> None:
    """Refuses calls, each with the same error."""
    failed = list(calls)
    for call in failed:
        call.dropped = True
        call.error = error
    deliver(failed)
