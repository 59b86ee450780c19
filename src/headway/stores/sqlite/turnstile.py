"""The turnstile: processes that write to one file take turns, and none is passed over.

SQLite's own busy handler sleeps and tries again, and whoever has just written is the first to try;
a light process then waits for seconds behind two that flood. Here each waits in the kernel: the
next one holds the queue while it waits for the door, so that the one who has just left stands
behind it. The locks of a process that is killed are gone with it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headway.core.errors import StoreUnavailable
from headway.stores.sqlite.timing import monotonic

_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB


class Turnstile:
    """One process's way to the write lock of a file.

    Attributes:
        door: descriptor of the lock file, beside the database.
        waiting_since: since when it waits for another process, by the monotonic clock; None
            while it does not.
    """

    def __init__(self, path: Path) -> None:
        self.waiting_since: float | None = None
        self._queue = _open(path.with_name(f"{path.name}-queue"))
        self.door = _open(path.with_name(f"{path.name}-door"))

    def enter(self) -> None:
        """Waits for its turn; nobody else is inside until `leave`."""
        self.waiting_since = monotonic()
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        fcntl.flock(self.door, fcntl.LOCK_EX)
        fcntl.flock(self._queue, fcntl.LOCK_UN)
        self.waiting_since = None

    def try_to_enter(self) -> bool:
        """Enters if nobody else is inside or waits.

        Returns:
            Whether it is inside.
        """
        try:
            fcntl.flock(self._queue, _AT_ONCE)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self.door, _AT_ONCE)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        return True

    def leave(self) -> None:
        """Lets the next one in."""
        fcntl.flock(self.door, fcntl.LOCK_UN)

    def close(self) -> None:
        """Gives up its place."""
        os.close(self._queue)
        os.close(self.door)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"the lock file {path} cannot be opened: {error.strerror}"
        raise StoreUnavailable(
            message, hint="the folder of the database must be writable"
        ) from error
