"""The listener: one subscriber per process, only while there are waiters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from headway.core.errors import StoreError
from headway.stores.redis.link import Link, NotSentError, ReplyError, ReplyLostError, packed
from headway.stores.redis.pool import Pool
from headway.stores.redis.replies import parse_wakes
from headway.stores.redis.timing import monotonic

_CHECK_EVERY = 5.0
"""Seconds after which a silent server is pinged, and the longest interval at which waiters are
woken while the process cannot listen.
"""
_REGISTERED_MS = 30_000
"""Milliseconds for which scripts publish wakes after the last registration of a waiting process."""
_LINGER = 60.0
"""Seconds after the last wait until the listener stops."""
_AGAIN = 0.25
"""Seconds before the first retry after a lost connection."""

_Woken = Sequence[tuple[str | None, int | None]]


class WakeListener:
    """A subscriber to the wakes of other processes.

    A waiting process is registered in the store, and scripts publish wakes only while one is. When
    the listener starts to listen, and whenever a message may have been missed, it wakes all
    waiters.

    Args:
        waiters: key under which waiting processes are registered.
        origin: returns the id of this process's calls, whose wakes are ignored.
    """

    def __init__(
        self,
        pool: Pool,
        channel: str,
        waiters: str,
        origin: Callable[[], str],
        wake: Callable[[_Woken], None],
    ) -> None:
        self._pool = pool
        self._channel = channel
        self._waiters = waiters
        self._origin = origin
        self._wake = wake
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._leaving = threading.Event()
        self._link: Link | None = None
        self._wanted_at = 0.0
        self._registered_at = 0.0
        self._pause = _AGAIN

    def ensure_listening(self) -> None:
        """Start the listener if it is not running, and postpone its stop."""
        self._wanted_at = monotonic()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._leaving.is_set():
                    name = "headway-redis-listener"
                    self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Stop the listener. Blocks until its thread has ended, or for `_CHECK_EVERY`."""
        self._leaving.set()
        with self._lock:
            thread, link = self._thread, self._link
        if link is not None:
            link.interrupt()
        if thread is not None:
            thread.join(_CHECK_EVERY)

    def _run(self) -> None:
        while not self._leaving.is_set():
            try:
                self._listen()
            except (NotSentError, ReplyLostError, ReplyError, StoreError, OSError):
                # This process gets no messages now, so its waiters claim without one.
                self._leaving.wait(self._pause)
                self._pause = min(self._pause * 2, _CHECK_EVERY)
                self._wake_all()
            with self._lock:
                if self._leaving.is_set() or not self._is_wanted():
                    self._thread = None
                    return

    def _is_wanted(self) -> bool:
        return monotonic() - self._wanted_at < _LINGER

    def _listen(self) -> None:
        """Listen until there are no waiters.

        Raises:
            OSError: the connection failed.
        """
        link = self._pool.connect()
        with self._lock:
            self._link = link
        try:
            link.ask("SUBSCRIBE", self._channel)
            self._register()
            # Wakes before the subscription were missed, so all waiters claim again.
            self._wake_all()
            self._pause = _AGAIN
            self._receive(link)
        finally:
            with self._lock:
                self._link = None
            link.close()

    def _receive(self, link: Link) -> None:
        link.socket.settimeout(_CHECK_EVERY)
        silent = False
        while not self._leaving.is_set() and self._is_wanted():
            try:
                message = link.receive()
            except TimeoutError:
                if silent:
                    raise
                silent = True
                link.socket.sendall(packed("PING"))
            else:
                silent = False
                if message[0] == b"message":
                    origin, woken = parse_wakes(message[2])
                    if origin != self._origin():
                        self._wake(woken)
            self._keep_registered()

    def _keep_registered(self) -> None:
        if monotonic() - self._registered_at > _REGISTERED_MS / 3000 and not self._register():
            # The registration had expired, so a wake may not have been published.
            self._wake_all()

    def _register(self) -> bool:
        """Register this process as waiting.

        Returns:
            Whether a process was registered already.
        """
        link = self._pool.take()
        try:
            known = link.ask("SET", self._waiters, "1", "PX", _REGISTERED_MS, "GET")
        except ReplyError:
            # The server's memory is full: waiters claim without messages.
            self._pool.give_back(link)
            self._registered_at = monotonic()
            return False
        except BaseException:
            link.close()
            raise
        self._pool.give_back(link)
        self._registered_at = monotonic()
        return known is not None

    def _wake_all(self) -> None:
        self._wake(((None, None),))
