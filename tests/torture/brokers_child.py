"""`headway` with a clock that is off, or with a calendar that takes what is due soon.

python -m tests.torture.brokers_child OFF_MS usual|soon headway's own words…
"""

from __future__ import annotations

import sys
import time
from typing import Any

from headway.bridges.cassandra import calendar
from headway.cli.main import main
from headway.core.job import NewJob


def move_clock(off_ms: int) -> None:
    """Let this process's wall clock be off from now on."""
    real_ns, real_s = time.time_ns, time.time
    time.time_ns = lambda: real_ns() + off_ms * 1_000_000
    time.time = lambda: real_s() + off_ms / 1000


def take_what_is_due_soon() -> None:
    """Let every job that is due later than now be written into the calendar.

    Its minute is then one that the leader reads again and again.
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
