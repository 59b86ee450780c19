"""Locks and folders; used by the supervisor and its owner."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress


def flock(lock: int) -> bool:
    """Lock an open file unless another process has locked it; return whether it is locked."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove(folder: str) -> None:
    """Delete a folder, including subfolders that their owner may not write, as Go's modules."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(folder):
        with suppress(OSError):
            os.chmod(folder, 0o700)
            for parent, names, _ in os.walk(folder):
                for path in (os.path.join(parent, name) for name in names):
                    if not os.path.islink(path):
                        os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)
