"""The clocks of the PostgreSQL store; no other module of it reads a clock."""

from __future__ import annotations

import time
from threading import Lock

from headway.contract.store import Clock

monotonic = time.monotonic
"""Monotonic seconds, for timeouts within one process."""

_DRIFT = 2e-4
"""Maximum drift between two clocks, in seconds per second."""


def system_clock() -> int:
    """Return milliseconds since 1970, UTC, by the machine's clock."""
    return time.time_ns() // 1_000_000


class StoreTime:
    """What a process knows of the store's time without a request.

    Args:
        clock: returns ms since 1970; None for the server's clock.

    Attributes:
        epoch: epoch of the last step; 0 before the first.
    """

    def __init__(self, clock: Clock | None) -> None:
        self.clock = clock
        self._lock = Lock()
        self.epoch = 0
        self._floor = 0
        self._offset: float | None = None
        self._observed = 0.0

    def floor(self, epoch: int) -> int:
        """Return the highest time that this process used in an epoch; 0 if not current."""
        return self._floor if epoch == self.epoch else 0

    def used(self, now: int, epoch: int) -> None:
        """Record the time of a step."""
        with self._lock:
            if epoch != self.epoch:
                # An operator may have set the store's time back.
                self.epoch, self._floor = epoch, now
            elif now > self._floor:
                self._floor = now

    def observe(self, server_ms: int) -> None:
        """Record the server's clock from a reply that has just arrived."""
        here = monotonic() * 1000
        with self._lock:
            # The reply is older than `here`, so the offset is never too large.
            offset = server_ms - here
            if self._offset is not None:
                offset = max(offset, self._offset - (here - self._observed) * _DRIFT)
            self._offset, self._observed = offset, here

    def guess(self) -> int | None:
        """Return an estimate of the store's clock that is not ahead of it; None if unknown."""
        if self.clock is not None:
            return self.clock() if self.epoch else None
        offset = self._offset
        return None if offset is None or not self.epoch else int(monotonic() * 1000 + offset)

    def about(self) -> int:
        """Return an estimate of the store's clock; the machine's if unknown."""
        guess = self.guess()
        if guess is not None:
            return guess
        return system_clock() if self.clock is None else self.clock()
