"""Fairness of the write lock: a process that has just released it queues behind all waiters."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from headway.core.errors import StoreUnavailable
from headway.stores.sqlite.disk import WriteLock

LIMIT = 120


class Other:
    """Another process, as far as the locks can tell: it has its own file descriptors."""

    def __init__(self, path: Path) -> None:
        self.write_lock = WriteLock(path)
        self.inside = threading.Event()
        self.leave = threading.Event()
        self.thread = threading.Thread(target=self._go, daemon=True)

    def _go(self) -> None:
        self.write_lock.acquire()
        self.inside.set()
        self.leave.wait(LIMIT)
        self.write_lock.release()
        self.write_lock.close()


def is_held(path: Path) -> bool:
    """Return whether this lock file is locked."""
    file = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)


def test_nonblocking_caller_delays_no_other(path: Path) -> None:
    mine, other, third = WriteLock(path), WriteLock(path), WriteLock(path)
    mine.acquire()
    assert not other.try_to_acquire()
    mine.release()
    # Another process waits in the queue: this one neither overtakes it nor waits itself.
    fcntl.flock(other._queue, fcntl.LOCK_EX)
    assert not third.try_to_acquire()
    fcntl.flock(other._queue, fcntl.LOCK_UN)
    assert third.try_to_acquire()
    for one in (mine, other, third):
        one.close()


def test_returning_caller_does_not_overtake_a_waiting_one(path: Path) -> None:
    mine = WriteLock(path)
    for _ in range(50):
        mine.acquire()
        other = Other(path)
        other.thread.start()
        while not is_held(path.with_name(f"{path.name}-queue")):
            assert other.thread.is_alive()
        mine.release()
        assert not mine.try_to_acquire()
        assert other.inside.wait(LIMIT)
        other.leave.set()
        other.thread.join(LIMIT)
    mine.close()


def test_lock_is_exclusive_until_released(path: Path) -> None:
    mine, other = WriteLock(path), Other(path)
    assert mine.try_to_acquire()
    other.thread.start()
    assert not other.inside.wait(0.05)
    assert other.write_lock.waiting_since is not None
    mine.release()
    assert other.inside.wait(LIMIT)
    assert other.write_lock.waiting_since is None
    assert not mine.try_to_acquire()
    other.leave.set()
    other.thread.join(LIMIT)
    assert mine.try_to_acquire()
    mine.close()


def test_link_to_the_file_has_the_same_lock(path: Path) -> None:
    path.touch()
    link = path.with_name("link.db")
    link.symlink_to(path)
    one, other = WriteLock(path), WriteLock(link)
    one.acquire()
    assert not other.try_to_acquire()
    one.release()
    assert other.try_to_acquire()
    one.close()
    other.close()


def test_place_of_a_dead_process_is_free(path: Path) -> None:
    gone, mine = WriteLock(path), WriteLock(path)
    gone.acquire()
    gone.close()
    assert mine.try_to_acquire()
    mine.close()


def test_folder_without_room_for_its_locks_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="lock file") as error:
        WriteLock(tmp_path / "nowhere" / "headway.db")
    assert "writable" in error.value.hint
