"""A queue of calls for one connection, served one group at a time.

Calls from an event loop are served by the queue's own thread. A caller without a loop serves its
own call, and those that came meanwhile, which saves two switches of threads.
"""

from __future__ import annotations

import os
import threading
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable

from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.stores.ledger.calls import deliver
from headway.stores.postgres.calls import AnyCall


class CallQueue:
    """A queue of calls, and the thread that serves those of event loops.

    Args:
        most: calls that are served at once.
        serve: answers calls: sets the answer or the error of each. Never raises an Exception.
        leave: what is done last.
        joins: whether a call may be served in one group with the first one of it.
    """

    def __init__(
        self,
        name: str,
        most: int,
        serve: Callable[[list[AnyCall]], None],
        leave: Callable[[], None],
        joins: Callable[[AnyCall, AnyCall], bool] = lambda _first, _other: True,
    ) -> None:
        self._most = most
        self._serve = serve
        self._leave = leave
        self._joins = joins
        self._calls: deque[AnyCall] = deque()
        self._asked = threading.Semaphore(0)
        self._turn = threading.Lock()
        self._starting = threading.Lock()
        self._closing = False
        self._started = False
        self._gathering: AbstractEventLoop | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, call: AnyCall, *, urgent: bool = False) -> None:
        """Put a call at the end of the queue, to be served by the queue's thread.

        Args:
            urgent: it goes before all calls that wait.

        Raises:
            StoreUnavailable: the queue is closed, or belongs to the process before a fork.
        """
        self._accept(call, urgent=urgent)
        if not self._started:
            with self._starting:
                if not self._started and not self._closing:
                    self._started = True
                    self._thread.start()
        if call.loop is None or (self._gathering and self._gathering is not call.loop):
            self._asked.release()
        elif self._gathering is None:
            # Whatever is asked in the same turn of the loop is served with it. Callers whose step
            # has ended ask again together: served one by one, the first would go alone each time.
            self._gathering = call.loop
            call.loop.call_soon(self._serve_gathered)

    def _serve_gathered(self) -> None:
        self._gathering = None
        self._asked.release()

    def serve_here(self, call: AnyCall, *, urgent: bool = False) -> None:
        """As `submit`, but serve it and all that wait on the caller's own thread. Blocks."""
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

    def _serve_some(self) -> None:
        group: list[AnyCall] = []
        while self._calls and len(group) < self._most:
            if group and not self._joins(group[0], self._calls[0]):
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

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            if not self._calls and self._closing:
                return
            while self._calls:
                with self._turn:
                    self._serve_some()

    def close(self, limit: float | None = None) -> None:
        """Serve what was asked for, then end the thread. Blocks.

        Args:
            limit: seconds to wait for it; what is left then is refused.
        """
        with self._starting:
            if self._closing:
                return
            self._closing = True
            started = self._started
        if started:
            self._asked.release()
            self._thread.join(limit)
        if self._turn.acquire(timeout=-1 if limit is None else limit):
            try:
                self._leave()
            finally:
                self._turn.release()
        self._refuse()

    def _refuse(self) -> None:
        message = "the store was closed before this was begun"
        late = list(self._calls)
        self._calls.clear()
        for call in late:
            call.error = StoreUnavailable(message, hint="nothing was written")
        deliver(late)
