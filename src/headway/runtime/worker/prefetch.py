"""How many jobs to hold ready: about a tenth of a second's work, as fast as handlers are now."""

from __future__ import annotations

AHEAD = 0.1
"""Seconds of work that are held ready."""


class Prefetch:
    """Follows the speed of the handlers.

    Attributes:
        target: jobs without gates to hold beyond those in handlers.
    """

    def __init__(self, most: int) -> None:
        """Begins with nothing held ready.

        Args:
            most: the target is never larger.
        """
        self.target = 0
        self._most = most
        self._at = 0.0
        self._done = 0

    def mark(self, at: float, done: int) -> None:
        """Begins a measurement.

        Args:
            at: now, in seconds.
            done: jobs whose handlers have ended so far.
        """
        self._at, self._done = at, done

    def measure(self, at: float, done: int) -> None:
        """Sets the target by the speed since the mark; it rises at once and falls by halves."""
        count, seconds = done - self._done, at - self._at
        if count <= 0 or seconds <= 0:
            return
        wanted = min(int(count / seconds * AHEAD), self._most)
        self.target = wanted if wanted > self.target else (self.target + wanted) // 2
