"""Calls: what is asked of a thread of the store, and how the one who asked is told the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from headway.core.job import NewJob
from headway.stores.postgres.done import Done

Answer = TypeVar("Answer")


class Call(Generic[Answer]):
    """One operation that is asked for.

    Args:
        work: does it, and says what it wrote.
        jobs: of an enqueue, what it inserts, so that several can be done as one; else None.
        own_thread: its caller waits in its own thread, though a loop may run there.

    Attributes:
        work: as given.
        jobs: as given.
        loop: where its caller waits; None for one that waits in its own thread.
        told: the caller has its answer.
        answer: of the operation.
        error: what to raise instead.
    """

    __slots__ = ("answer", "bell", "error", "future", "jobs", "loop", "told", "work")

    def __init__(
        self,
        work: Callable[[], tuple[Answer, Done]],
        jobs: Sequence[NewJob] | None = None,
        *,
        own_thread: bool = False,
    ) -> None:
        self.work = work
        self.jobs = jobs
        self.told = False
        self.loop = None if own_thread else running_loop()
        self.future: asyncio.Future[Answer] | None = None
        self.bell: Lock | None = None
        if self.loop is not None:
            self.future = self.loop.create_future()
        else:
            self.bell = Lock()
            self.bell.acquire()
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

    def result(self) -> Answer:
        """What a caller in its own thread was told.

        Raises:
            BaseException: what the operation raised, or why it was refused.
        """
        if self.error is not None:
            raise self.error
        return cast("Answer", self.answer)


AnyCall = Call[Any]


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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
