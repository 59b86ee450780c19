"""Reports a handler that blocks its worker's event loop, as with `time.sleep`."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from threading import get_ident

from headway.runtime.job import Job
from headway.runtime.timing import Timing

BLOCKED_AFTER = 1.0
"""Seconds after which a loop that has not run between two beats is reported."""

_log = logging.getLogger("headway.worker")


class LoopWatch:
    """Checks at each beat whether the running event loop has run since the previous one.

    Args:
        job_of: returns the job whose handler a task runs, if it runs one.
    """

    def __init__(self, timing: Timing, job_of: Callable[[object], Job | None]) -> None:
        self._timing = timing
        self._job_of = job_of
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._asked_at: float | None = None
        self._reported = False

    def check(self) -> None:
        """Report once that the loop is blocked, and where; called in the heartbeat's thread."""
        now = self._timing.monotonic()
        asked_at = self._asked_at  # once: the loop may run, and clear it, at any moment
        if asked_at is None:
            self._asked_at = now
            self._loop.call_soon_threadsafe(self._on_turn)
        elif now - asked_at >= BLOCKED_AFTER and not self._reported:
            self._reported = True
            self._report(now - asked_at)

    def _on_turn(self) -> None:
        self._asked_at = None
        self._reported = False

    def _report(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  (documented by Python)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown"
        job = self._job_of(asyncio.current_task(self._loop))
        _log.warning(
            "event loop blocked for %.1f s%s at=%s; a handler that blocks must be a plain def,"
            " which runs in a thread",
            seconds,
            f" kind={job.kind} id={job.id}" if job else "",
            place,
        )
