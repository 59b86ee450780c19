"""Free space on the device: new jobs are refused while those in flight need what is left."""

from __future__ import annotations

import os
from pathlib import Path

from headway.core.errors import StoreFull
from headway.stores.sqlite.timing import monotonic

_LOOK_EVERY = 0.25
"""Seconds for which a check of the device is cached."""
_SHARE = 20
"""On a small device the reserve is a twentieth of its size."""


class DiskSpace:
    """The free space of a device.

    Args:
        reserve_bytes: the least free space, unless the device is small.
    """

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._folder = path.parent
        self._reserve = reserve_bytes
        self._looked_at = float("-inf")
        self._short: StoreFull | None = None

    def shortage(self) -> StoreFull | None:
        """Return the error to refuse new jobs with; None unless the device is nearly full."""
        now = monotonic()
        if now - self._looked_at >= _LOOK_EVERY:
            self._looked_at = now
            self._short = self._check()
        return self._short

    def _check(self) -> StoreFull | None:
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
