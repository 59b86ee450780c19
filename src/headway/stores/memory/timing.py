"""The clock of this machine, and a step's time: the highest ever read."""

from __future__ import annotations

import time

from headway.contract.store import Clock


def machine_clock() -> int:
    """Return milliseconds since 1970, by the machine's clock."""
    return time.time_ns() // 1_000_000


class StepTime:
    """The time of the current step, never less than that of an earlier step."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now = 0

    def begin(self) -> None:
        """Fix the time of a step."""
        self.now = max(self.now, self._clock())

    def ahead_ms(self) -> int:
        """Return how far the time is ahead of the clock."""
        return max(0, self.now - self._clock())
