"""A desk: one thread that serves calls in the order in which they come."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from headway.core.errors import StoreUnavailable
from headway.stores.sqlite.calls import AnyCall, fail


class Desk:
    """One thread and its queue of calls.

    Args:
        name: of the thread.
        serve: takes calls off the queue and answers them; never raises.
        leave: what the thread does last.
    """

    def __init__(self, name: str, serve: Callable[[], None], leave: Callable[[], None]) -> None:
        self._serve = serve
        self._leave = leave
        self._calls: deque[AnyCall] = deque()
        self._bulk: deque[AnyCall] = deque()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._idle = False
        self._closing = False
        self._started = False
        self._starting = threading.Lock()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, call: AnyCall) -> None:
        """Puts a call at the end of the queue.

        Raises:
            StoreUnavailable: the desk is closed, or belongs to the process before a fork.
        """
        if self._closing:
            message = "the store is closed"
            raise StoreUnavailable(message, hint="open it again; nothing was written")
        if not self._started:
            self._start()
        (self._bulk if call.bulk else self._calls).append(call)
        self._ring()

    def _start(self) -> None:
        if self._process != os.getpid():
            message = "the store was opened before this process was forked"
            raise StoreUnavailable(message, hint="open a store in each process")
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
            self._serve()
        self._leave()

    @property
    def _asked(self) -> bool:
        return bool(self._calls or self._bulk)

    def take(self, most: int) -> list[AnyCall]:
        """Takes calls off the queue, those that may take long behind the others.

        Args:
            most: of each sort.
        """
        taken: list[AnyCall] = []
        for calls in (self._calls, self._bulk):
            taken += [calls.popleft() for _ in range(min(len(calls), most))]
        return [call for call in taken if not call.dropped]

    def put_back(self, left: list[AnyCall]) -> None:
        """Makes calls that were taken and not begun the next ones, bulk or not."""
        self._calls.extendleft(reversed(left))

    def waiting_before(self, moment: float) -> list[AnyCall]:
        """Calls that were asked for before a moment of the monotonic clock and are not begun."""
        waiting = [*self._calls, *self._bulk]
        return [call for call in waiting if call.asked_at < moment and not call.dropped]

    def close(self, limit: float | None = None) -> None:
        """Serves what was asked for, then ends the thread. Blocks.

        Args:
            limit: seconds to wait for it; what is left then is refused.
        """
        with self._starting:
            self._closing = True
            started, self._started = self._started, True
        if not started:
            self._leave()
            return
        self._idle = True
        self._ring()
        self._thread.join(limit)
        if self._thread.is_alive():
            message = "the store was closed before this was begun"
            fail([*self._calls, *self._bulk], StoreUnavailable(message, hint="nothing was written"))
