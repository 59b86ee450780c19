"""Calls, and the queue of one connection that serves them in groups."""

from __future__ import annotations

import os
import threading
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from typing import Any

from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.core.job import NewJob
from headway.stores.ledger.calls import Answer, CallBase, deliver, running_loop
from headway.stores.postgres.shared import Done
from headway.stores.postgres.timing import monotonic

Together = Callable[[Sequence[Any]], tuple[Sequence[Any], Done]]
"""Handle several requests in one step; return the answers in order, and what was done."""
TOGETHER = 256
"""Maximum number of calls per step, so that other steps do not wait long."""


class Call(CallBase[Answer]):
    """A requested operation.

    Args:
        work: executes the call; None if `together` does.
        jobs: jobs of an enqueue, so that several enqueues can be merged; None for other calls.
        item: request of a call that can share a step with others of its kind.
        together: handles the items of several such calls in one step.
        own_thread: whether the caller blocks its thread even if an event loop runs there.

    Attributes:
        at: when it was made, in monotonic seconds.
    """

    __slots__ = ("at", "item", "jobs", "together", "work")

    def __init__(
        self,
        work: Callable[[], tuple[Answer, Done]] | None = None,
        jobs: Sequence[NewJob] | None = None,
        *,
        item: object = None,
        together: Together | None = None,
        own_thread: bool = False,
    ) -> None:
        super().__init__(None if own_thread else running_loop())
        self.work = work
        self.jobs = jobs
        self.item = item
        self.together = together
        self.at = monotonic()


AnyCall = Call[Any]


def share(group: Sequence[AnyCall], other: AnyCall) -> bool:
    """Return whether a call can share a step with others."""
    return group[0].together is not None and group[0].together == other.together


def serve(calls: Sequence[AnyCall], done: Callable[[Done], None]) -> None:
    """Serve calls in one step; a refused call fails alone.

    If the step is refused, each half is tried separately, down to the call at fault. That costs the
    other calls only a few more steps. If the server is unavailable, no call is at fault.

    Args:
        calls: at least one; each gets its answer or its error.
        done: called with what each step has done.
    """
    first = calls[0]
    if len(calls) == 1 or first.together is None:
        for call in calls:
            serve_alone(call, done)
        return
    try:
        answers, wrote = first.together([call.item for call in calls])
    except (OutcomeUnknown, StoreUnavailable) as error:
        for call in calls:
            call.error = error
    except Exception:  # noqa: BLE001  (one call was refused; nothing was written)
        middle = len(calls) // 2
        serve(calls[:middle], done)
        serve(calls[middle:], done)
    else:
        for call, answer in zip(calls, answers, strict=True):
            call.answer = answer
        done(wrote)


def serve_alone(call: AnyCall, done: Callable[[Done], None]) -> None:
    """Serve one call in its own step, and set its answer or its error.

    Args:
        done: called with what the step has done.
    """
    try:
        if call.work is not None:
            call.answer, wrote = call.work()
        else:
            assert call.together is not None  # noqa: S101  (a call has one of the two)
            (call.answer,), wrote = call.together((call.item,))
    except Exception as error:  # noqa: BLE001  (any error belongs to the caller)
        call.error = error
    else:
        done(wrote)


class CallQueue:
    """A queue of calls, and the thread that serves those of event loops.

    Args:
        most: maximum number of calls per group.
        serve: sets the answer or the error of each call. Never raises an Exception.
        leave: called at the end.
        joins: returns whether a call can be added to a group.
        patience: seconds that a call waits for others while the server is unavailable.
    """

    def __init__(
        self,
        name: str,
        most: int,
        serve: Callable[[list[AnyCall]], None],
        leave: Callable[[], None],
        joins: Callable[[Sequence[AnyCall], AnyCall], bool] = lambda _group, _other: True,
        *,
        patience: float = inf,
    ) -> None:
        self._patience = patience
        self._most = most
        self._serve = serve
        self._leave = leave
        self._joins = joins
        self._calls: deque[AnyCall] = deque()
        # One item per wake-up of the thread; faster than threading.Semaphore.
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._turn = threading.Lock()
        self._starting = threading.Lock()
        self._closing = False
        self._ended = False
        self._started = False
        self._gathering: AbstractEventLoop | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, call: AnyCall, *, urgent: bool = False) -> None:
        """Append a call to the queue; the queue's thread serves it.

        Args:
            urgent: put it before all waiting calls.

        Raises:
            StoreUnavailable: the queue is closed, or was created before this process was forked.
        """
        self._accept(call, urgent=urgent)
        if not self._started:
            with self._starting:
                if not self._started and not self._closing:
                    self._started = True
                    self._thread.start()
        if call.loop is None or (self._gathering and self._gathering is not call.loop):
            self._asked.put(None)
        elif self._gathering is None:
            # Calls made in the same iteration of the loop are served with it. Callers whose step
            # has ended call again together; if served one by one, the first would always go alone.
            self._gathering = call.loop
            call.loop.call_soon(self._serve_gathered)

    def _serve_gathered(self) -> None:
        self._gathering = None
        self._asked.put(None)

    def serve_here(self, call: AnyCall, *, urgent: bool = False) -> None:
        """Like `submit`, but serve it and all waiting calls on the caller's thread. Blocks."""
        self._accept(call, urgent=urgent)
        while not call.delivered:
            with self._turn:
                if not call.delivered:
                    self._serve_some()

    def _accept(self, call: AnyCall, *, urgent: bool) -> None:
        if self._closing:
            message = "the store is closed"
            raise StoreUnavailable(message, hint="open it again; nothing was written")
        if self._process != os.getpid():
            message = "the store was opened before this process was forked"
            raise StoreUnavailable(message, hint="open a store in each process")
        if urgent:
            self._calls.appendleft(call)
        else:
            self._calls.append(call)
        if self._ended:
            # It was closed since the check above, and nothing serves or refuses later calls.
            self._refuse()

    def _serve_some(self) -> None:
        group: list[AnyCall] = []
        while self._calls and len(group) < self._most:
            if group and not self._joins(group, self._calls[0]):
                break
            group.append(self._calls.popleft())
        if not group:
            return
        try:
            self._serve(group)
        except BaseException:
            message = "the thread that served this call was interrupted"
            for call in group:
                if call.answer is None and call.error is None:
                    call.error = OutcomeUnknown(message, hint="repeat the call")
            raise
        finally:
            deliver(group)
        failed = next((one.error for one in group if isinstance(one.error, StoreUnavailable)), None)
        if failed is not None:
            self._refuse_late(failed)

    def _refuse_late(self, error: StoreUnavailable) -> None:
        """Refuse calls that have waited for long enough, because the server is unavailable.

        Each attempt may take as long as the server's timeouts, so the last of many calls would wait
        for many times as long.
        """
        late_at = monotonic() - self._patience
        late: list[AnyCall] = []
        # Another thread may append a call meanwhile, or take one.
        with suppress(IndexError):
            while self._calls[0].at <= late_at:
                late.append(self._calls.popleft())
        for call in late:
            call.error = error
        deliver(late)

    def _run(self) -> None:
        while True:
            self._asked.get()
            while self._calls:
                with self._turn:
                    self._serve_some()
            # After these calls: what `close` put may have been the last item, and was taken above.
            if self._closing:
                return

    def close(self, limit: float | None = None) -> None:
        """Serve all waiting calls, then stop the thread. Blocks.

        Args:
            limit: seconds to wait; calls that are left then are refused.
        """
        with self._starting:
            if self._closing:
                return
            self._closing = True
            started = self._started
        until = None if limit is None else monotonic() + limit
        if started:
            self._asked.put(None)
            self._thread.join(limit)
        if self._turn.acquire(timeout=-1 if until is None else max(0.0, until - monotonic())):
            try:
                self._leave()
            finally:
                self._turn.release()
        self._ended = True
        self._refuse()

    def _refuse(self) -> None:
        message = "the store was closed before this call started"
        late: list[AnyCall] = []
        # Several threads may be here; each call is taken by one.
        with suppress(IndexError):
            while True:
                late.append(self._calls.popleft())
        for call in late:
            call.error = StoreUnavailable(message, hint="nothing was written")
        deliver(late)
