"""A store in a folder, and helpers for testing it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from headway.stores.sqlite import SqliteOptions
from headway.stores.sqlite.disk import WriteLock

Answer = TypeVar("Answer")


def options(path: Path, **changes: object) -> SqliteOptions:
    """Return the options to open a file: no wait for the device unless a test asks for it."""
    given: dict[str, object] = {"synchronous": "normal", "reserve_bytes": 0, **changes}
    return SqliteOptions(path=path, **given)  # type: ignore[arg-type]


def number(path: Path, key: int) -> int:
    """Return a number as another connection reads it from the file."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute("SELECT n FROM number WHERE key = ?", (key,)).get or 0
    finally:
        db.close()


@contextmanager
def door_shut(path: Path) -> Iterator[None]:
    """Hold the write lock as another process would, so that calls queue behind it."""
    write_lock = WriteLock(path)
    write_lock.acquire()
    try:
        yield
    finally:
        write_lock.release()
        write_lock.close()


class _Turn:
    def __await__(self) -> Iterator[None]:
        yield


async def one_turn() -> None:
    """Let everything else that is ready in the loop run once."""
    await _Turn()


async def until(done: threading.Event, seconds: float = 30) -> None:
    """Wait for a named event of a thread, with a limit."""
    assert await asyncio.to_thread(done.wait, seconds), "the event did not come"


def drive(answer: Awaitable[Answer]) -> Answer:
    """Run a coroutine outside any event loop; it must finish without suspending."""
    steps = answer.__await__()
    try:
        next(steps)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it suspended")
