"""A fair lock for the processes that write to one file.

SQLite's own busy handler sleeps and tries again, and the process that has just written is the
first to try; a light process then waits for seconds behind two that flood. Here each waits in the
kernel: the next one holds the queue lock while it waits for the write lock, so the process that
has just released it comes after. A killed process releases its locks.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headway.core.errors import StoreUnavailable
from headway.stores.sqlite.timing import monotonic

_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB


class WriteLock:
    """The write lock of a file, as one process takes it.

    Attributes:
        file: descriptor of the lock file, beside the database.
        waiting_since: since when it waits for another process, by the monotonic clock; None
            while it does not.
    """

    def __init__(self, path: Path) -> None:
        self.waiting_since: float | None = None
        self._queue = _open(path.with_name(f"{path.name}-queue"))
        self.file = _open(path.with_name(f"{path.name}-door"))

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
        """Close the lock files."""
        os.close(self._queue)
        os.close(self.file)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"the lock file {path} cannot be opened: {error.strerror}"
        raise StoreUnavailable(
            message, hint="the folder of the database must be writable"
        ) from error
