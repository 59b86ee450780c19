"""The clocks of the Redis store, and its only sleep."""

from __future__ import annotations

import time

from headway.contract.store import Clock

monotonic = time.monotonic
"""Monotonic seconds, for timeouts within one process."""

pause = time.sleep
"""Sleep on a thread of the caller or the store, never in an event loop."""


def machine_clock() -> int:
    """Return ms since 1970, UTC, by the machine's clock, to compare a server's with."""
    return time.time_ns() // 1_000_000


class StoreClock:
    """An estimate of the store's time, extrapolated from the last reply.

    It is for pauses, never for decisions.

    Args:
        clock: replaces the server's clock, for tests.
    """

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._ahead = 0

    def observe(self, now: int) -> None:
        """Record the store's time from a reply, ms."""
        self._ahead = now - int(monotonic() * 1000)

    def override(self) -> bytes:
        """Return the time that scripts use as their clock; empty for the server's."""
        return b"" if self._clock is None else b"%d" % self._clock()

    def __call__(self) -> int:
        """Return the store's time, ms."""
        return int(monotonic() * 1000) + self._ahead if self._clock is None else self._clock()
