"""Calls served by a store's thread, the delivery of their replies, and functions in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from threading import Lock
from typing import Any, Generic, TypeVar, cast

Answer = TypeVar("Answer")


class CallBase(Generic[Answer]):
    """One requested operation; each store's subclass adds the request itself.

    Args:
        loop: the caller's event loop; None if the caller blocks its own thread.

    Attributes:
        future: awaited by a caller with an event loop.
        done_lock: blocks a caller without an event loop; released with the reply.
        delivered: whether the caller has its reply.
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
        """Deliver the reply; if the caller has a loop, call this in the loop's thread."""
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
        """Return the result, for a caller that blocked its own thread.

        Raises:
            BaseException: the error of the operation, or the reason for its refusal.
        """
        if self.error is not None:
            raise self.error
        return cast("Answer", self.answer)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return this thread's running event loop, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def deliver(calls: Iterable[CallBase[Any]]) -> None:
    """Deliver the replies, from any thread, waking each loop once."""
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
            # The loop is closed, so no caller is waiting there.
            continue


def _deliver_all(calls: Sequence[CallBase[Any]]) -> None:
    for call in calls:
        call.deliver_reply()


Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run a function in a thread, to completion even if the caller is cancelled.

    `asyncio.to_thread` would never run it if the cancellation came before a thread was free.
    """
    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # otherwise asyncio logs it as never retrieved
        raise cancelled
    return running.result()
