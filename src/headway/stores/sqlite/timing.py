"""The clocks of the SQLite store, and its one pause; nothing else here tells time."""

from __future__ import annotations

import time

monotonic = time.monotonic
"""Seconds that only grow; for limits within one process."""

pause = time.sleep
"""Waits in a thread of the store's own; never in an event loop."""


def system_clock() -> int:
    """Milliseconds since 1970, UTC, by the machine's clock."""
    return time.time_ns() // 1_000_000


def file_age_ms(modified_ns: int) -> int:
    """How long ago a file's time stamp was set.

    Args:
        modified_ns: as `os.stat` tells it.

    Returns:
        Milliseconds; negative when the clock was set back since.
    """
    return (time.time_ns() - modified_ns) // 1_000_000
