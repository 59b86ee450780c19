"""Whoever is cancelled in the middle of a session holds nobody else up."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from sqlalchemy import text

from headway.runtime.timing import REAL
from headway.systems.directory.database import Directory

ROUNDS, AT_ONCE = 40, 8


async def look(directory: Directory) -> None:
    async with directory.read() as session:
        (await session.execute(text("SELECT count(*) FROM t"))).one()


async def write(directory: Directory) -> None:
    async with directory.change() as session:
        (await session.execute(text("SELECT count(*) FROM t"))).one()
        await session.execute(text("INSERT INTO t VALUES (1)"))


async def test_writers_need_not_wait_for_those_who_were_cancelled_at_any_moment(tmp_path: Path):
    directory = Directory(f"sqlite:///{tmp_path}/directory.db")
    await directory.open()
    async with directory.change() as session:
        await session.execute(text("CREATE TABLE t (n INTEGER)"))
    draw = random.Random(1)
    try:
        for _ in range(ROUNDS):
            jobs = (draw.choice((look, write))(directory) for _ in range(AT_ONCE))
            tasks = [asyncio.create_task(one) for one in jobs]
            await REAL.pause(draw.uniform(0, 0.006))
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # A lock that is not given back ends this: SQLite waits for it, and then refuses.
            await write(directory)
    finally:
        await directory.close()
