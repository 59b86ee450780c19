"""Bytes on disk for each scheduled job with 200 bytes of arguments."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw

import headway as hw
from bench.bench import Bench
from headway.core.job import NewJob
from headway.runtime import event_loop

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SIZE = "bytes a scheduled job"
FAR_AT = 4_000_000_000_000
ARGS = 200


def scheduled(bench: Bench) -> None:
    count = bench.scale.sized
    with bench.fresh() as folder:
        path = folder / "headway.db"
        event_loop.run(_fill(path, 1))
        empty = _pages(path)
        event_loop.run(_fill(path, count))
        each = (_pages(path) - empty) / count
    bench.add(SIZE, "headway", "bytes", [each], f"{count:,} jobs, {ARGS}-byte arguments")
    bench.goal("bytes a scheduled job", each, most=700)


async def _fill(path: Path, count: int) -> None:
    app = hw.App(f"sqlite:///{path}")

    @app.job(name="remind", lane="reminders")
    async def remind(job: hw.Job, text: str) -> None:
        del job, text

    text = "x" * (ARGS - len('{"text":""}'))
    async with app:
        jobs: list[NewJob] = []
        for number in range(count):
            # Due times in no order, as they come in life.
            due_at = FAR_AT + number * 7_919_000 % 86_400_000_000
            jobs.append(remind.make(text=text, due=EPOCH + timedelta(milliseconds=due_at)))
            if len(jobs) == 10_000:
                await app.send_many_async(jobs)
                jobs = []
                await asyncio.sleep(0)
        await app.send_many_async(jobs)


def _pages(path: Path) -> int:
    db = apsw.Connection(str(path))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    return path.stat().st_size
