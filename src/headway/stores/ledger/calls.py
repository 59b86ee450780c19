"""Calls that a thread of a store serves, how each caller gets its reply, and work in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from threading import Lock
from typing import Any, Generic, TypeVar, cast

Answer = TypeVar("Answer")


class CallBase(Generic[Answer]):
    """One requested operation; each store's subclass adds what is to be done.

    Args:
        loop: of the caller; None if it waits in its own thread.

    Attributes:
        future: what a caller in a loop waits for.
        done_lock: what a caller in its own thread waits for; released when the reply is there.
        delivered: the caller has its reply.
    """

    __slots__ = ("answer", "delivered", "done_lock", "error", "future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.delivered = False
        self.loop = loop
        self.future: asyncio.Future[Answer] | None = None
        self.done_lock: Lock | None = None
        if loop is not None:
            self.future = loop.create_future()
        else:
            self.done_lock = Lock()
            self.done_lock.acquire()
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def deliver_reply(self) -> None:
        """Hand the reply to the caller; in its loop's own thread, if it has a loop."""
        if self.delivered:
            return
        self.delivered = True
        if self.done_lock is not None:
            self.done_lock.release()
        elif self.future is None or self.future.done():
            return
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("Answer", self.answer))

    def result(self) -> Answer:
        """Return the result to a caller in its own thread.

        Raises:
            BaseException: what the operation raised, or why it was refused.
        """
        if self.error is not None:
            raise self.error
        return cast("Answer", self.answer)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def deliver(calls: Iterable[CallBase[Any]]) -> None:
    """Hand each caller its reply, from any thread, waking each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[CallBase[Any]]] = {}
    for call in calls:
        if call.loop is None:
            call.deliver_reply()
        else:
            loops.setdefault(call.loop, []).append(call)
    for loop, group in loops.items():
        try:
            loop.call_soon_threadsafe(_deliver_all, group)
        except RuntimeError:
            # The loop is closed, so no caller waits there.
            continue


def _deliver_all(calls: Sequence[CallBase[Any]]) -> None:
    for call in calls:
        call.deliver_reply()


Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run a function in a thread, to its end even if the caller is cancelled.

    `asyncio.to_thread` never begins it if no thread was free until then.
    """
    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # or it is logged as never retrieved
        raise cancelled
    return running.result()
