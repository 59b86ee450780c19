"""`headway` with a wrong clock, or with a calendar that also takes jobs due soon.

python -m tests.torture.brokers_child OFF_MS usual|soon headway's own arguments…
"""

from __future__ import annotations

import sys
import time
from typing import Any

from headway.bridges.cassandra import calendar
from headway.cli.main import main
from headway.core.job import NewJob


def move_clock(off_ms: int) -> None:
    """Make this process's wall clock wrong by an offset from now on."""
    real_ns, real_s = time.time_ns, time.time
    time.time_ns = lambda: real_ns() + off_ms * 1_000_000
    time.time = lambda: real_s() + off_ms / 1000


def take_what_is_due_soon() -> None:
    """Write every job that is not yet due into the calendar.

    Its minute is then one that the leader is still re-reading.
    """

    def is_far(job: NewJob, now: int, **_: Any) -> bool:
        return job.due_at is not None and job.due_at > now

    calendar.is_far = is_far


if __name__ == "__main__":
    off_ms, takes, *words = sys.argv[1:]
    move_clock(int(off_ms))
    if takes == "soon":
        take_what_is_due_soon()
    sys.argv = ["headway", *words]
    main()
