"""The keeper: a thread that listens for bells, and once a second looks whether all is well."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headway.stores.sqlite.bells import Bells, Ring
from headway.stores.sqlite.timing import monotonic

LOOK_EVERY = 1.0
"""Seconds between two looks."""


class Keeper:
    """One thread for what nobody calls for.

    Args:
        bells: of the file.
        hear: is told what was rung.
        look: is called each second.
    """

    def __init__(
        self, bells: Bells, hear: Callable[[Ring], None], look: Callable[[], None]
    ) -> None:
        self._bells = bells
        self._hear = hear
        self._look = look
        self._stopped = False
        self._poked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headway-keeper", daemon=True)
        self._starting = threading.Lock()

    def start(self) -> None:
        """Begins, once."""
        with self._starting:
            if self._thread.ident is None and not self._stopped:
                self._thread.start()

    def hang_up_bell(self) -> bool:
        """Makes this process heard of.

        Returns:
            Whether it was not before, so that a bell may have been missed.
        """
        if self._bells.hung:
            return False
        self._bells.hang_up()
        self._poked.set()
        return True

    def _run(self) -> None:
        next_look = monotonic() + LOOK_EVERY
        while not self._stopped:
            pause = next_look - monotonic()
            if pause <= 0:
                next_look = monotonic() + LOOK_EVERY
                self._look()
            elif self._bells.hung:
                rung = self._bells.listen(pause)
                if rung is not None and not self._stopped:
                    self._hear(rung)
            else:
                self._poked.wait(pause)
                self._poked.clear()

    def stop(self) -> None:
        """Ends the thread. Blocks until it has."""
        with self._starting:
            self._stopped = True
            started = self._thread.ident is not None
        if started:
            self._poked.set()
            self._bells.ring_own()
            self._thread.join()
