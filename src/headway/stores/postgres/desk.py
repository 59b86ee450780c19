"""A desk: where calls for one connection are handed in, and served one group at a time.

Callers in an event loop leave it to the desk's own thread. A caller without a loop serves itself,
and whoever else has asked meanwhile, so that it costs no change of threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.stores.ledger.calls import deliver
from headway.stores.postgres.calls import AnyCall


class Desk:
    """A queue of calls, and a thread for those who cannot wait themselves.

    Args:
        name: of the thread.
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
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, call: AnyCall, *, urgent: bool = False) -> None:
        """Puts a call at the end of the queue, to be served by the desk's thread.

        Args:
            call: what is asked for.
            urgent: it goes before all calls that wait.

        Raises:
            StoreUnavailable: the desk is closed, or belongs to the process before a fork.
        """
        self._accept(call, urgent=urgent)
        if not self._started:
            with self._starting:
                if not self._started and not self._closing:
                    self._started = True
                    self._thread.start()
        self._asked.release()

    def serve_here(self, call: AnyCall, *, urgent: bool = False) -> None:
        """Serves a call, and whoever else has asked, on the caller's own thread. Blocks.

        Args:
            call: what is asked for.
            urgent: it goes before all calls that wait.

        Raises:
            StoreUnavailable: the desk is closed, or belongs to the process before a fork.
        """
        self._accept(call, urgent=urgent)
        while not call.told:
            with self._turn:
                if not call.told:
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
            with self._turn:
                self._serve_some()

    def close(self, limit: float | None = None) -> None:
        """Serves what was asked for, then ends the thread. Blocks.

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
