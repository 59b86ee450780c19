"""Calls: what an event loop asks of a thread of the store, and how it is told the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
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
        loop: where its caller waits; None for one that waits in its own thread.
        future: what a caller in a loop waits for.
        bell: what a caller in its own thread waits for; rung by being released.
        told: the caller has its answer.
        verb: what to do within a step.
        jobs: of an enqueue, what it inserts, so that several can be done as one; else None.
        bulk: it may take long, and lets those behind it go first.
        takes_room: it is refused while the device is nearly full.
        asked_at: by the monotonic clock.
        answer: of the verb.
        error: what to raise instead.
    """

    __slots__ = (
        "answer",
        "asked_at",
        "bell",
        "bulk",
        "error",
        "future",
        "jobs",
        "loop",
        "takes_room",
        "told",
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
        self.told = False
        self.loop = running_loop()
        self.future: asyncio.Future[Answer] | None = None
        self.bell: Lock | None = None
        if self.loop is not None:
            self.future = self.loop.create_future()
        else:
            self.bell = Lock()
            self.bell.acquire()
        self.asked_at = monotonic()
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def tell(self) -> None:
        """Gives the caller its answer; in its loop's own thread, if it has a loop."""
        if self.told:
            return
        self.told = True
        if self.bell is not None:
            self.bell.release()
        elif self.future is None or self.future.done():
            return
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("Answer", self.answer))

    def wait(self) -> None:
        """Blocks a caller in its own thread until it is told."""
        if self.bell is not None:
            self.bell.acquire()

    def result(self) -> Answer:
        """What a caller in its own thread was told.

        Raises:
            BaseException: what the verb raised, or why it was refused.
        """
        if self.error is not None:
            raise self.error
        return cast("Answer", self.answer)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


AnyCall = Call[Any]


def deliver(calls: Iterable[AnyCall]) -> None:
    """Tells each caller its answer, from any thread, waking each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[AnyCall]] = {}
    for call in calls:
        if call.loop is None:
            call.tell()
        else:
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
    """Refuses calls that were not begun, each with the same error."""
    failed = list(calls)
    for call in failed:
        call.error = error
    deliver(failed)
