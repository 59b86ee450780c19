"""Calls: what is asked of a thread of a store, and how the one who asked is told the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar, cast

Answer = TypeVar("Answer")


class CallBase(Generic[Answer]):
    """One operation that is asked for; what is to be done, each store adds.

    Args:
        loop: where its caller waits; None for one that waits in its own thread.

    Attributes:
        loop: as given.
        future: what a caller in a loop waits for.
        bell: what a caller in its own thread waits for; rung by being released.
        told: the caller has its answer.
        answer: of the operation.
        error: what to raise instead.
    """

    __slots__ = ("answer", "bell", "error", "future", "loop", "told")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.told = False
        self.loop = loop
        self.future: asyncio.Future[Answer] | None = None
        self.bell: Lock | None = None
        if loop is not None:
            self.future = loop.create_future()
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


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def deliver(calls: Iterable[CallBase[Any]]) -> None:
    """Tells each caller its answer, from any thread, waking each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[CallBase[Any]]] = {}
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


def _tell_all(calls: Sequence[CallBase[Any]]) -> None:
    for call in calls:
        call.tell()
