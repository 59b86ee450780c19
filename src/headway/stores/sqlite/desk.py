"""A desk: where calls are handed in, and served one group at a time.

Callers in an event loop leave it to the desk's own thread. A caller without a loop serves itself,
and whoever else has asked meanwhile, so that it costs no change of threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from headway.core.errors import StoreUnavailable
from headway.stores.sqlite.calls import AnyCall, fail

_SLICE = 0.1
"""Seconds after which a caller that waits for its turn looks whether it was given up."""


class Desk:
    """A queue of calls, and a thread for those who cannot wait themselves.

    Args:
        name: of the thread.
        serve: takes calls off the queue and answers them; told whether it may wait for other
            processes, and says whether it did not have to. Never raises an Exception.
        leave: what is done last.
    """

    def __init__(self, name: str, serve: Callable[[bool], bool], leave: Callable[[], None]) -> None:
        self._serve = serve
        self._leave = leave
        self._urgent: deque[AnyCall] = deque()
        self._calls: deque[AnyCall] = deque()
        self._bulk: deque[AnyCall] = deque()
        self._queues = (self._urgent, self._calls, self._bulk)
        self._bulk_waited = False
        self._bell = threading.Lock()
        self._bell.acquire()
        self._idle = False
        self._closing = False
        self._started = False
        self._starting = threading.Lock()
        self._turn = threading.Lock()
        self._taking = threading.Lock()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, call: AnyCall) -> None:
        """Puts a call at the end of its queue, to be served by the desk's thread.

        Raises:
            StoreUnavailable: the desk is closed, or belongs to the process before a fork.
        """
        self._accept(call)
        self._wake()

    def serve_here(self, call: AnyCall) -> None:
        """Serves a call, and whoever else has asked, on the caller's own thread. Blocks.

        Raises:
            StoreUnavailable: the desk is closed, or belongs to the process before a fork.
        """
        self._accept(call)
        while not call.told:
            if not self._turn.acquire(timeout=_SLICE):
                continue
            try:
                served = call.told or self._serve(False)
            finally:
                self._turn.release()
            if not served:
                # Another process is inside. The thread can wait for it, and be given up.
                self._wake()
                call.wait()

    def _accept(self, call: AnyCall) -> None:
        if self._closing:
            message = "the store is closed"
            raise StoreUnavailable(message, hint="open it again; nothing was written")
        if self._process != os.getpid():
            message = "the store was opened before this process was forked"
            raise StoreUnavailable(message, hint="open a store in each process")
        self._queue_of(call).append(call)

    def _queue_of(self, call: AnyCall) -> deque[AnyCall]:
        return self._urgent if call.urgent else self._bulk if call.bulk else self._calls

    def _wake(self) -> None:
        if not self._started:
            self._start()
        self._ring()

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                self._started = True
                self._thread.start()

    def _ring(self) -> None:
        if self._idle:
            self._idle = False
            try:
                self._bell.release()
            except RuntimeError:
                # Somebody else rang in the same moment.
                return

    def _run(self) -> None:
        bell = self._bell
        while True:
            while not self._asked and not self._closing:
                # Said before looking once more, so that no call comes unheard.
                self._idle = True
                if not self._asked and not self._closing:
                    bell.acquire()
            self._idle = False
            if not self._asked:
                break
            with self._turn:
                self._serve(True)
        with self._turn:
            self._leave()

    @property
    def _asked(self) -> bool:
        return any(self._queues)

    def take(self, most: int) -> list[AnyCall]:
        """Take calls off the queues: urgent ones first, and those that may take long by themselves.

        Where both sorts wait they alternate: no call waits for more than one group of bulk.

        Args:
            most: of each sort.
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
        """Put calls that were taken and not begun before all others of their sort."""
        for call in reversed(left):
            self._queue_of(call).appendleft(call)

    def give_up(self, before: float, error: StoreUnavailable) -> None:
        """Refuses calls that were not begun.

        Args:
            before: those that were asked for before this moment of the monotonic clock.
            error: to refuse them with.
        """
        late: list[AnyCall] = []
        with self._taking:
            for calls in self._queues:
                for _ in range(len(calls)):
                    call = calls.popleft()
                    (late if call.asked_at < before else calls).append(call)
        fail(late, error)

    def close(self, limit: float | None = None) -> None:
        """Serves what was asked for, then ends the thread. Blocks.

        Args:
            limit: seconds to wait for it; what is left then is refused.
        """
        with self._starting:
            if self._closing:
                return
            self._closing = True
            started, self._started = self._started, True
        if not started:
            with self._turn:
                self._leave()
            return
        self._idle = True
        self._ring()
        self._thread.join(limit)
        if self._thread.is_alive():
            message = "the store was closed before this was begun"
            self.give_up(float("inf"), StoreUnavailable(message, hint="nothing was written"))
