"""The background thread: receives notifications, and checks the file once a second."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headway.stores.sqlite.notifier import Notification, Notifier
from headway.stores.sqlite.timing import monotonic

LOOK_EVERY = 1.0
"""Seconds between two checks."""


class BackgroundThread:
    """One thread for work that no call asks for.

    Args:
        on_notification: called with each notification.
        check: called each second.
    """

    def __init__(
        self,
        notifier: Notifier,
        on_notification: Callable[[Notification], None],
        look: Callable[[], None],
    ) -> None:
        self._notifier = notifier
        self._on_notification = on_notification
        self._check = look
        self._stopped = False
        self._poke = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headway-keeper", daemon=True)
        self._starting = threading.Lock()

    def start(self) -> None:
        """Begin, once."""
        with self._starting:
            if self._thread.ident is None and not self._stopped:
                self._thread.start()

    def start_listening(self) -> bool:
        """Begin to receive notifications of other processes.

        Returns:
            Whether it did not before, so that a notification may have been missed.
        """
        if self._notifier.listening:
            return False
        self._notifier.start()
        self._poke.set()
        return True

    def _run(self) -> None:
        next_look = monotonic() + LOOK_EVERY
        while not self._stopped:
            pause = next_look - monotonic()
            if pause <= 0:
                next_look = monotonic() + LOOK_EVERY
                self._check()
            elif self._notifier.listening:
                notification = self._notifier.listen(pause)
                if notification is not None and not self._stopped:
                    self._on_notification(notification)
            else:
                self._poke.wait(pause)
                self._poke.clear()

    def stop(self) -> None:
        """End the thread. Blocks until it has ended."""
        with self._starting:
            self._stopped = True
            started = self._thread.ident is not None
        if started:
            self._poke.set()
            self._notifier.wake_own()
            self._thread.join()
