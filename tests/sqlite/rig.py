"""A store in a folder, and what tests of it need."""

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
    """How tests open a file: without waiting for the device, unless they say so."""
    given: dict[str, object] = {"synchronous": "normal", "reserve_bytes": 0, **changes}
    return SqliteOptions(path=path, **given)  # type: ignore[arg-type]


def number(path: Path, key: int) -> int:
    """A number as another connection finds it in the file."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute("SELECT n FROM number WHERE key = ?", (key,)).get or 0
    finally:
        db.close()


@contextmanager
def door_shut(path: Path) -> Iterator[None]:
    """Holds the write lock as another process would, so that calls gather behind it."""
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
    """Lets everything else that is ready in the loop go on once."""
    await _Turn()


async def until(done: threading.Event, seconds: float = 30) -> None:
    """Waits for a named event of a thread, with a limit."""
    assert await asyncio.to_thread(done.wait, seconds), "the event did not come"


def drive(answer: Awaitable[Answer]) -> Answer:
    """Runs a coroutine outside any event loop; it must end without suspending."""
    steps = answer.__await__()
    try:
        next(steps)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it suspended")
