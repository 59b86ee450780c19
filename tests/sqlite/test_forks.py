"""A process that has used a file is forked: parent and child go on, each with its own locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.contract.views import StatsQuery
from headway.stores.sqlite import SqliteStore, forking
from tests.plain_jobs import job
from tests.sqlite.rig import drive, options

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


def forked(work: Callable[[], object]) -> int:
    """Run a function in a child, which exits with 0 if it raises nothing; return its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def waiting(store: SqliteStore) -> int:
    return drive(store.read(StatsQuery())).counts["waiting"]


def test_child_of_a_process_that_is_writing_opens_the_file_at_once(path: Path) -> None:
    """In the child, the parent's transaction would stay open forever."""
    store, done = SqliteStore(options(path)), threading.Event()

    def write(thread: int) -> None:
        for n in range(100_000):
            if done.is_set():
                return
            drive(store.enqueue([job(thread * 100_000 + n)]))

    def use_it() -> None:
        own = SqliteStore(options(path))
        drive(own.enqueue([job(1_000_000 + os.getpid())]))
        drive(own.close())

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for one in threads:
        one.start()
    try:
        codes = [exit_code(forked(use_it)) for _ in range(4)]
    finally:
        done.set()
        for one in threads:
            one.join()
    assert codes == [0] * 4
    drive(store.close())


def test_jobs_of_a_child_stay_when_its_parent_closes_the_store(path: Path) -> None:
    """SQLite would delete the log as unused: the connection of the child held no lock."""
    store = SqliteStore(options(path))
    drive(store.enqueue([job(1)]))
    (opened, told), (closed, tell) = os.pipe(), os.pipe()

    def use_it() -> None:
        own = SqliteStore(options(path))
        drive(own.enqueue([job(2)]))
        os.write(told, b"x")
        os.read(closed, 1)
        drive(own.enqueue([job(3)]))
        # Killed as it is: closing would write the log back.

    pid = forked(use_it)
    os.read(opened, 1)
    drive(store.close())
    os.write(tell, b"x")
    assert exit_code(pid) == 0
    for one in (opened, told, closed, tell):
        os.close(one)
    later = SqliteStore(options(path))
    assert waiting(later) == 3
    drive(later.close())


def test_parent_goes_on_after_a_fork(path: Path) -> None:
    store = SqliteStore(options(path))
    drive(store.enqueue([job(1)]))
    assert waiting(store) == 1
    assert exit_code(forked(lambda: None)) == 0
    drive(store.enqueue([job(2)]))
    assert waiting(store) == 2
    drive(store.close())


def test_lock_of_a_killed_parent_is_free_though_its_child_lives(path: Path) -> None:
    drive(SqliteStore(options(path)).close())
    (ready, told), (over, tell) = os.pipe(), os.pipe()

    def lock_and_die() -> None:
        store = SqliteStore(options(path))
        if os.fork() == 0:
            os.read(over, 1)
            os._exit(0)
        store._writer.write_lock.acquire()
        os.write(told, b"x")
        os.kill(os.getpid(), signal.SIGKILL)

    assert exit_code(forked(lock_and_die)) == -signal.SIGKILL
    os.read(ready, 1)
    store = SqliteStore(options(path, patience_ms=2000))
    try:
        assert drive(store.enqueue([job(1)]))[0].created
    finally:
        os.write(tell, b"x")
        for one in (ready, told, over, tell):
            os.close(one)
        drive(store.close())


COLLECTING = """
import gc, os, sys
from pathlib import Path

gc.disable()
# Hooks before a fork run in reverse order: this one after that of the store.
os.register_at_fork(before=gc.collect)
from headway.stores.sqlite import SqliteStore
from tests.sqlite.rig import options

store = SqliteStore(options(Path(sys.argv[1])))
store.itself = store
writer = store._writer
del store
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
writer.queue.close()
assert writer.write_lock.file == -1
"""


def test_dropped_store_may_be_collected_during_a_fork(path: Path) -> None:
    """The thread that forks holds the turns of all stores: a store that waits for its own hangs."""
    command = [sys.executable, "-W", "ignore", "-c", COLLECTING, str(path)]
    subprocess.run(command, check=True, timeout=60)


def test_child_opens_a_store_though_another_thread_was_opening_one(path: Path) -> None:
    """SQLite's own locks, held by that thread during the fork, would never be released there."""
    done = threading.Event()

    def open_and_close(name: str) -> None:
        drive(SqliteStore(options(path.with_name(name))).close())

    def keep_opening(thread: int) -> None:
        while not done.is_set():
            open_and_close(f"{thread}.db")

    def use_it() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)  # ends a child that hangs
        open_and_close("child.db")

    threads = [threading.Thread(target=keep_opening, args=(n,)) for n in range(3)]
    for one in threads:
        one.start()
    try:
        for _ in range(8):
            assert exit_code(forked(use_it)) == 0
    finally:
        done.set()
        for one in threads:
            one.join()


def test_one_thread_at_a_time_takes_the_turns_for_a_fork() -> None:
    """Two threads that take them in different orders would wait for each other."""
    taken = threading.Event()

    def take() -> None:
        forking._before()
        taken.set()
        forking._after_in_parent()

    other = threading.Thread(target=take)
    forking._before()
    try:
        other.start()
        assert not taken.wait(0.2)
    finally:
        forking._after_in_parent()
        other.join()
    assert taken.is_set()
