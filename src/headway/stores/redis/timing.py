"""The clocks of the Redis store, and its only sleep."""

from __future__ import annotations

import time

from headway.contract.store import Clock

monotonic = time.monotonic
"""Seconds that only grow; for limits within one process."""

pause = time.sleep
"""Waits in a thread of the caller's or the store's own; never in an event loop."""


def machine_clock() -> int:
    """Milliseconds since 1970, UTC, by the machine's clock; to compare a server's with."""
    return time.time_ns() // 1_000_000


class StoreClock:
    """The store's time as this process knows it, continued from the last reply.

    It is for pauses, never for decisions.

    Args:
        clock: in place of the server's, for tests; None for the server's.
    """

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._ahead = 0

    def observe(self, now: int) -> None:
        """Take over the store's time from a reply, ms."""
        self._ahead = now - int(monotonic() * 1000)

    def override(self) -> bytes:
        """Return the time that scripts use as their clock; empty for the server's own."""
        return b"" if self._clock is None else b"%d" % self._clock()

    def __call__(self) -> int:
        """Return the store's time, ms."""
        return int(monotonic() * 1000) + self._ahead if self._clock is None else self._clock()
