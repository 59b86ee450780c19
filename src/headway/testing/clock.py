"""A clock that stands still until a test moves it."""

from __future__ import annotations

START_AT = 1_767_225_600_000
"""Where a fake clock begins: 2026-01-01T00:00Z, a Thursday."""


class FakeClock:
    """Returns the time that it was set to.

    Attributes:
        at: the time now, in ms UTC.
    """

    def __init__(self, at: int = START_AT) -> None:
        self.at = at

    def __call__(self) -> int:
        """The time now, in ms UTC."""
        return self.at

    def advance(self, ms: int) -> int:
        """Move the time by so many ms, back if negative, and return it."""
        self.at += ms
        return self.at

    def jump_to(self, at: int) -> int:
        """Move the time to an instant, in ms UTC, forward or back, and return it."""
        self.at = at
        return self.at
