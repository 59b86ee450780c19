"""The clocks of the Redis store, and its only sleep."""

from __future__ import annotations

import time

monotonic = time.monotonic
"""Seconds that only grow; for limits within one process."""

pause = time.sleep
"""Waits in a thread of the caller's or the store's own; never in an event loop."""


def machine_clock() -> int:
    """Milliseconds since 1970, UTC, by the machine's clock; to compare a server's with."""
    return time.time_ns() // 1_000_000
