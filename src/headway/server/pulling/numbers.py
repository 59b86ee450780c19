"""Numbers of claims; for callers that do not count, by the clock: so they grow over restarts."""

from __future__ import annotations

from headway.runtime.timing import Timing

MAX_REQUEST = 2**53 - 1
"""The largest number of a claim: the largest that every JSON reader keeps exactly."""
MOST_TRIES = 32
"""After so many numbers that were used before, the clock is not what is wrong."""


class Numbers:
    """Gives numbers that grow, and are seldom below those that another server gave.

    Args:
        timing: tells the time.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._last = 0

    def next(self, tries: int = 0) -> int:
        """A number above all that were given before.

        Args:
            tries: how many before it were used up, by a server whose clock is ahead or by another
                pull of the same worker; each makes the number jump further.

        Returns:
            Microseconds since 1970, or more.
        """
        ahead = 1_000_000 << tries if tries > 1 else 0
        self._last = max(self._last + 1, self._timing.wall_at() * 1_000 + ahead)
        return self._last
