"""The store's time as this process knows it: for pauses, never for decisions."""

from __future__ import annotations

from headway.contract.clock import Clock
from headway.stores.redis.timing import monotonic


class StoreClock:
    """Continues from the time in the last reply.

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
