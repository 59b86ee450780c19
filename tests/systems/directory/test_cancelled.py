"""A task that is cancelled in the middle of a session does not block any other."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path
from threading import Event
from typing import Any

import aiosqlite.core
import pytest
from sqlalchemy import text

from headway.runtime.timing import REAL
from headway.systems.directory.database import Directory

ROUNDS, AT_ONCE = 40, 8


async def read(directory: Directory) -> None:
    async with directory.read() as session:
        (await session.execute(text("SELECT count(*) FROM t"))).one()


async def write(directory: Directory) -> None:
    async with directory.change() as session:
        (await session.execute(text("SELECT count(*) FROM t"))).one()
        await session.execute(text("INSERT INTO t VALUES (1)"))


async def test_writers_do_not_wait_for_callers_cancelled_at_any_time(tmp_path: Path):
    directory = Directory(f"sqlite:///{tmp_path}/directory.db")
    await directory.open()
    async with directory.change() as session:
        await session.execute(text("CREATE TABLE t (n INTEGER)"))
    draw = random.Random(1)
    try:
        for _ in range(ROUNDS):
            jobs = (draw.choice((read, write))(directory) for _ in range(AT_ONCE))
            tasks = [asyncio.create_task(one) for one in jobs]
            await REAL.pause(draw.uniform(0, 0.006))
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # A lock that was not released shows here: SQLite waits for it, then refuses.
            await write(directory)
    finally:
        await directory.close()


async def test_closing_waits_for_the_threads_of_callers_cancelled_while_connecting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    connects, go_on = Event(), Event()

    class Slow:
        @staticmethod
        def connect(*args: Any, **options: Any) -> sqlite3.Connection:
            connects.set()
            go_on.wait()
            return sqlite3.connect(*args, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(sqlite3, name)

    directory = Directory(f"sqlite:///{tmp_path}/directory.db")
    await directory.open()
    monkeypatch.setattr(aiosqlite.core, "sqlite3", Slow())
    reads = [asyncio.create_task(read(directory)) for _ in range(2)]
    await asyncio.to_thread(connects.wait)
    for one in reads:
        one.cancel()
    await asyncio.gather(*reads, return_exceptions=True)

    closing = asyncio.create_task(directory.close())
    await asyncio.wait([closing], timeout=0.1)
    waited = not closing.done()
    go_on.set()
    await closing

    # Its thread would notify an event loop that may be closed by then.
    assert waited
