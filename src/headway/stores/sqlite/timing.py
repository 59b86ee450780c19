"""The clocks of the SQLite store, and its only sleep."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from headway.contract.store import Clock
from headway.core.errors import ClockSkewed
from headway.core.instant import format_instant

CLOCK_LIMIT_MS = 10_000
"""How far the clock of a process may differ from that of the machine that has the file."""
_CHECK_AGAIN_MS = 1_000
"""How far a clock may drift from the monotonic clock before it is checked again."""

monotonic = time.monotonic
"""Seconds that never decrease, for time limits within one process."""

pause = time.sleep
"""Sleeps, only in the store's own threads, never in an event loop."""


def system_clock() -> int:
    """Return milliseconds since 1970, UTC, by the machine's clock."""
    return time.time_ns() // 1_000_000


def file_age_ms(modified_ns: int) -> int:
    """Return the age of a file's time stamp; negative if the clock was set back since."""
    return (time.time_ns() - modified_ns) // 1_000_000


def skew_ms(clock: Clock, file: int | Path) -> int | None:
    """Compare a clock with that of the machine that has a file, using the file's time stamp.

    Args:
        file: descriptor or path of a file that this process may write; its time stamp is set.

    Returns:
        How far the clock is ahead, ms; negative if it is behind, 0 if the difference is below the
        resolution of the stamp, None if the file cannot be stamped.
    """
    with suppress(OSError):
        before = clock()
        os.utime(file)
        stamp, after = os.stat(file).st_mtime_ns // 1_000_000, clock()
        return max(before - stamp, 0) or min(after - stamp, 0)
    return None


class CheckedClock:
    """The clock of a process, which raises while it differs from the clock of the store.

    The store's clock is that of the machine that has the file; time stamps on files show it to
    every process. A file is stamped only after the clock was moved, so most calls cost nothing.

    Args:
        clock: returns ms since 1970.
        file: descriptor of a file beside the database, for the stamps.
    """

    def __init__(self, clock: Clock, file: int) -> None:
        self._clock = clock
        self._file = file
        self._checked: float | None = None

    def __call__(self) -> int:
        """Return ms since 1970.

        Raises:
            ClockSkewed: the clock is off by more than the limit; nothing was written.
        """
        now = self._clock()
        ahead = now - monotonic() * 1000
        if self._checked is None or abs(ahead - self._checked) > _CHECK_AGAIN_MS:
            # A file system that refuses a stamp shows nothing about the clock.
            skew = skew_ms(self._clock, self._file)
            if skew is not None and abs(skew) > CLOCK_LIMIT_MS:
                raised: ClockSkewed = _skewed(now, skew)
                raise raised
            self._checked = ahead
        return now


def _skewed(now: int, skew: int) -> ClockSkewed:
    message = (
        f"the clock of this process shows {format_instant(now)}, but that of the store shows"
        f" {format_instant(now - skew)}; they may differ by at most {CLOCK_LIMIT_MS // 1000} s"
    )
    hint = "correct the clock of this process or container; nothing was written"
    return ClockSkewed(message, hint=hint)
