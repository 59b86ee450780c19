"""Room on the device: jobs are refused while what is under way could not be settled any more."""

from __future__ import annotations

import os
from pathlib import Path

from headway.core.errors import StoreFull
from headway.stores.sqlite.timing import monotonic

_LOOK_EVERY = 0.25
"""Seconds for which a look at the device is believed."""
_SHARE = 20
"""A twentieth of a small device is enough of a reserve."""


class Room:
    """How much room a device has.

    Args:
        path: any file on it.
        reserve_bytes: the least room, unless the device is small.
    """

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._folder = path.parent
        self._reserve = reserve_bytes
        self._looked_at = float("-inf")
        self._short: StoreFull | None = None

    def shortage(self) -> StoreFull | None:
        """The error to refuse new jobs with, while the device is nearly full."""
        now = monotonic()
        if now - self._looked_at >= _LOOK_EVERY:
            self._looked_at = now
            self._short = self._look()
        return self._short

    def _look(self) -> StoreFull | None:
        try:
            device = os.statvfs(self._folder)
        except OSError:
            return None
        free = device.f_bavail * device.f_frsize
        reserve = min(self._reserve, device.f_blocks * device.f_frsize // _SHARE)
        if free >= reserve:
            return None
        message = f"the device of {self._folder} has {free} bytes left of a reserve of {reserve}"
        return StoreFull(message, hint="free some space; nothing was written")
