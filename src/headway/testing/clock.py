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
        """Move the time on.

        Args:
            ms: by how much; a negative number jumps back, as real clocks do now and then.

        Returns:
            The time now.
        """
        self.at += ms
        return self.at

    def jump_to(self, at: int) -> int:
        """Move the time to an instant, forward or back.

        Args:
            at: ms UTC.

        Returns:
            The time now.
        """
        self.at = at
        return self.at
