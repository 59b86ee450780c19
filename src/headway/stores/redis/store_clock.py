"""The store's time as this process knows it: for pauses, never for decisions."""

from __future__ import annotations

from headway.contract.clock import Clock
from headway.stores.redis.timing import monotonic


class StoreClock:
    """Goes on from the last time that a reply told.

    Args:
        clock: in place of the server's, for tests; None for the server's.
    """

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._ahead = 0

    def hear(self, now: int) -> None:
        """A reply told the store's time, ms."""
        self._ahead = now - int(monotonic() * 1000)

    def override(self) -> bytes:
        """What a script is to take for its clock; empty for the server's own."""
        return b"" if self._clock is None else b"%d" % self._clock()

    def __call__(self) -> int:
        """The store's time, ms."""
        return int(monotonic() * 1000) + self._ahead if self._clock is None else self._clock()
