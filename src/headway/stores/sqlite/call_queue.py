"""Calls, and the queue that serves them, one group at a time."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from headway.core.errors import StoreUnavailable
from headway.core.job import NewJob
from headway.stores.ledger.calls import Answer, CallBase, deliver, running_loop
from headway.stores.sqlite.ledger import SqliteLedger
from headway.stores.sqlite.timing import monotonic

URGENT, NORMAL, BULK = range(3)
"""The ranks of calls."""
MOST_JOBS, MOST_BYTES = 16, 65_536
"""An enqueue with more jobs, or with more bytes of arguments, is bulk."""
_ARGS = attrgetter("args")


class Call(CallBase[Answer]):
    """One requested operation.

    Attributes:
        verb: runs within a step.
        jobs: the jobs of an enqueue, so that several enqueues can be merged; None for other calls.
        rank: an `URGENT` call overtakes all others: leases depend on beats. A `BULK` call may take
            long, so later calls may overtake it.
        takes_room: it is refused while the device is nearly full.
        asked_at: when it was submitted, by the monotonic clock.
    """

    __slots__ = ("asked_at", "jobs", "rank", "takes_room", "verb")

    def __init__(
        self,
        verb: Callable[[SqliteLedger], Answer],
        *,
        jobs: Sequence[NewJob] | None = None,
        takes_room: bool = False,
        urgent: bool = False,
    ) -> None:
        super().__init__(running_loop())
        self.verb = verb
        self.jobs = jobs
        self.takes_room = takes_room
        self.rank = URGENT if urgent else NORMAL
        if jobs is not None and (
            len(jobs) > MOST_JOBS or sum(map(len, map(_ARGS, jobs))) > MOST_BYTES
        ):
            self.rank = BULK
        self.asked_at = monotonic()

    def wait(self) -> None:
        """Block a caller without an event loop until it has its reply."""
        if self.done_lock is not None:
            self.done_lock.acquire()


AnyCall = Call[Any]


def fail(calls: Iterable[AnyCall], error: BaseException) -> None:
    """Refuse calls that were not started, all with the same error."""
    failed = list(calls)
    for call in failed:
        call.error = error
    deliver(failed)


def _closed() -> StoreUnavailable:
    message = "the store is closed"
    return StoreUnavailable(message, hint="open it again; nothing was written")


_SLICE = 0.1
"""How often a caller that waits for its turn checks whether its call was refused, seconds."""


class CallQueue:
    """A queue of calls, and the thread that serves those of event loops.

    Args:
        serve: takes calls off the queue and serves them. Its argument is whether it may wait for
            other processes; it returns False if it would have had to. It never raises an Exception.
        leave: releases what `serve` uses, when the queue is closed.

    Attributes:
        turn: held while calls are served.
    """

    def __init__(self, name: str, serve: Callable[[bool], bool], leave: Callable[[], None]) -> None:
        self._serve = serve
        self._leave = leave
        self._urgent: deque[AnyCall] = deque()
        self._calls: deque[AnyCall] = deque()
        self._bulk: deque[AnyCall] = deque()
        self._by_rank = (self._urgent, self._calls, self._bulk)
        self._bulk_waited = False
        self._sleep_lock = threading.Lock()
        self._sleep_lock.acquire()
        self._idle = False
        self._closing = False
        self._started = False
        self._ended = False
        self._starting = threading.Lock()
        self.turn = threading.Lock()
        self._taking = threading.Lock()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, call: AnyCall) -> None:
        """Append a call to its queue, for the queue's thread to serve.

        Raises:
            StoreUnavailable: the queue is closed, or belongs to the process before a fork.
        """
        self._accept(call)
        self._wake()

    def serve_here(self, call: AnyCall) -> None:
        """Serve a call, and others in the queue, on the caller's own thread. Blocks.

        Raises:
            StoreUnavailable: the queue is closed, or belongs to the process before a fork.
        """
        self._accept(call)
        while not call.delivered:
            if not self.turn.acquire(timeout=_SLICE):
                continue
            try:
                served = call.delivered or self._serve(False)
            finally:
                self.turn.release()
            if not served:
                # Another process holds the lock; the queue's own thread waits for it.
                self._wake()
                call.wait()

    def _accept(self, call: AnyCall) -> None:
        if self._closing:
            raise _closed()
        if self._process != os.getpid():
            message = "the store was opened before this process was forked"
            raise StoreUnavailable(message, hint="open a store in each process")
        self._by_rank[call.rank].append(call)
        if self._ended:
            # The queue was closed in the meantime, and its thread may have missed this call.
            self.give_up(float("inf"), _closed())

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                self._started = True
                self._thread.start()

    def _wake(self) -> None:
        if not self._started:
            self._start()
        if self._idle:
            self._idle = False
            try:
                self._sleep_lock.release()
            except RuntimeError:
                # Another thread has just released it.
                return

    def _run(self) -> None:
        sleep_lock, calls = self._sleep_lock, self._by_rank
        while True:
            while not any(calls) and not self._closing:
                # Set before the queues are checked again, so that no call is missed.
                self._idle = True
                if not any(calls) and not self._closing:
                    sleep_lock.acquire()
            self._idle = False
            if not any(calls):
                break
            with self.turn:
                self._serve(True)
        with self.turn:
            self._end()

    def _end(self) -> None:
        """Release everything, and refuse calls that came too late to be served."""
        self._leave()
        self._ended = True
        self.give_up(float("inf"), _closed())

    def take(self, most: int) -> list[AnyCall]:
        """Take calls off the queues: urgent ones first, bulk ones in separate groups.

        Bulk groups alternate with others, so that no call waits for more than one bulk group.
        """
        taken: list[AnyCall] = []
        with self._taking:
            others = self._urgent or self._calls
            bulk = bool(self._bulk) and (self._bulk_waited or not others)
            self._bulk_waited = bool(self._bulk) and not bulk
            for calls in (self._bulk,) if bulk else (self._urgent, self._calls):
                taken += [calls.popleft() for _ in range(min(len(calls), most))]
        return taken

    def put_back(self, left: list[AnyCall]) -> None:
        """Put calls that were not started back at the front of their queues."""
        for call in reversed(left):
            self._by_rank[call.rank].appendleft(call)
        # While a caller served them, the thread may have found nothing to do.
        self._wake()

    def give_up(self, before: float, error: StoreUnavailable) -> None:
        """Refuse calls that were not started.

        Args:
            before: only calls submitted before this time of the monotonic clock.
        """
        late: list[AnyCall] = []
        with self._taking:
            for calls in self._by_rank:
                for _ in range(len(calls)):
                    call = calls.popleft()
                    (late if call.asked_at < before else calls).append(call)
        fail(late, error)

    def end(self) -> None:
        """Make the thread serve the queued calls and then end, without waiting for it."""
        with self._starting:
            if self._closing:
                return
            self._closing = True
            started, self._started = self._started, True
        if started:
            self._idle = True
            self._wake()
        elif self.turn.acquire(blocking=False):
            try:
                self._end()
            finally:
                self.turn.release()
        else:
            # A caller serves calls, or this very thread holds the turn because it forks.
            self._thread.start()

    def close(self, limit: float | None = None) -> None:
        """Serve the queued calls, then end the thread. Blocks.

        Calls that other threads submit in the meantime are served or refused.

        Args:
            limit: maximum time to wait, seconds; the remaining calls are then refused.
        """
        self.end()
        if self._thread.is_alive():
            self._thread.join(limit)
        if self._thread.is_alive():
            message = "the store was closed before this call started"
            self.give_up(float("inf"), StoreUnavailable(message, hint="nothing was written"))
