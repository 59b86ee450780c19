"""What the writer needs from the disk: a fair lock on the file, checkpoints, and free space."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headway.core.errors import StoreFull
from headway.stores.sqlite.database import PASSIVE, Database, not_opened
from headway.stores.sqlite.forking import close_in_children
from headway.stores.sqlite.timing import monotonic

_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB


class WriteLock:
    """One process's handle on the write lock of a database file.

    Attributes:
        file: descriptor of the lock file beside the database.
        waiting_since: since when this process has waited for another, by the monotonic clock; None
            if it is not waiting.
    """

    def __init__(self, path: Path) -> None:
        self.waiting_since: float | None = None
        path = path.resolve()  # one lock for all names of a file, as SQLite has one log
        self._queue = _open(path.with_name(f"{path.name}-queue"))
        self.file = _open(path.with_name(f"{path.name}-door"))
        # A child would keep the lock of a parent that was killed.
        close_in_children(self)

    def acquire(self) -> None:
        """Wait for the lock; it is held until `release`."""
        self.waiting_since = monotonic()
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        fcntl.flock(self._queue, fcntl.LOCK_UN)
        self.waiting_since = None

    def try_to_acquire(self) -> bool:
        """Take the lock if no other process holds it or waits for it, and return whether it did."""
        try:
            fcntl.flock(self._queue, _AT_ONCE)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self.file, _AT_ONCE)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        return True

    def release(self) -> None:
        """Release the lock."""
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock files, once."""
        if self.file >= 0:
            os.close(self._queue)
            os.close(self.file)
            self.file = -1


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        what = f"the lock file {path} cannot be opened"
        raise not_opened(what, error, "the folder of the database must be writable") from error


SOON = 1_000
"""Pages of the WAL (4 KiB each) after which it is written back between small commits."""
LATE = 4_000
"""The same between large commits, so that hot pages are copied less often."""
SMALL = 100
"""Most pages of a small commit."""


class Checkpoints:
    """Checkpoints the WAL between steps; SQLite would do it within a COMMIT, delaying the caller.

    Args:
        db: the connection that writes, with automatic checkpoints turned off.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._pages = 0
        self._grown = 0
        self._tried = 0
        db.set_wal_hook(self._note)

    def _note(self, _db: object, _name: str, pages: int) -> int:
        restarted = pages <= self._pages
        self._grown = pages if restarted else pages - self._pages
        self._pages = pages
        if restarted:
            self._tried = 0
        return 0

    def run_if_due(self) -> bool:
        """Write the WAL back if it is long, without taking a lock that others wait for.

        Returns:
            Whether it was tried. The WAL stays long while a reader uses it; the next try follows
            when it has grown by the same number of pages.
        """
        if self._pages - self._tried < (SOON if self._grown <= SMALL else LATE):
            return False
        self._tried = self._pages
        self._db.wal_checkpoint(mode=PASSIVE)
        return True


_CHECK_EVERY = 0.25
"""Seconds for which a check of the device is cached."""
_SHARE = 20
"""On a small device, the reserve is its size divided by this."""


class DiskSpace:
    """The free space of a device.

    Args:
        reserve_bytes: the least free space required, unless the device is small.
    """

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._folder = path.parent
        self._reserve = reserve_bytes
        self._checked_at = float("-inf")
        self._short: StoreFull | None = None

    def shortage(self) -> StoreFull | None:
        """Return the error with which to refuse new jobs if the device is nearly full."""
        now = monotonic()
        if now - self._checked_at >= _CHECK_EVERY:
            self._checked_at = now
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
        message = f"the device of {self._folder} has {free} bytes free; the reserve is {reserve}"
        return StoreFull(message, hint="free some space; nothing was written")
