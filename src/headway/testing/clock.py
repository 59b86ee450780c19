"""A clock that only moves when a test moves it."""

from __future__ import annotations

START_AT = 1_767_225_600_000
"""Start time of a fake clock: 2026-01-01T00:00Z, a Thursday."""


class FakeClock:
    """A clock that returns the time it was set to.

    Attributes:
        at: current time, ms UTC.
    """

    def __init__(self, at: int = START_AT) -> None:
        self.at = at

    def __call__(self) -> int:
        """Return the current time, ms UTC."""
        return self.at

    def advance(self, ms: int) -> int:
        """Advance the time (or set it back, if negative), and return it."""
        self.at += ms
        return self.at

    def jump_to(self, at: int) -> int:
        """Set the time to an instant, ms UTC, forward or back, and return it."""
        self.at = at
        return self.at
