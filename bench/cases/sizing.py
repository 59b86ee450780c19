"""Bytes per scheduled job with 200 bytes of arguments, on disk or in Redis's memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import headway as hw
from bench.bench import Bench
from headway.core.job import NewJob
from headway.runtime import event_loop

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SIZE = "bytes a scheduled job"
MOST = {"sqlite": 700, "postgres": 900, "redis": 700}
FAR_AT = 4_000_000_000_000
ARGS = 200


def scheduled(bench: Bench) -> None:
    count = bench.scale.sized
    with bench.fresh() as place:
        event_loop.run(_fill(place.url, 1))
        empty = place.size()
        event_loop.run(_fill(place.url, count))
        each = (place.size() - empty) / count
    bench.add(SIZE, "headway", "bytes", [each], f"{count:,} jobs, {ARGS}-byte arguments")
    bench.goal(SIZE, each, most=MOST[bench.ground.store])


async def _fill(url: str, count: int) -> None:
    app = hw.App(url)

    @app.job(name="remind", lane="reminders")
    async def remind(job: hw.Job, text: str) -> None:
        del job, text

    text = "x" * (ARGS - len('{"text":""}'))
    async with app:
        jobs: list[NewJob] = []
        for number in range(count):
            # Due times in random order, as in practice.
            due_at = FAR_AT + number * 7_919_000 % 86_400_000_000
            jobs.append(remind.make(text=text, due=EPOCH + timedelta(milliseconds=due_at)))
            if len(jobs) == 10_000:
                await app.send_many_async(jobs)
                jobs = []
                await asyncio.sleep(0)
        await app.send_many_async(jobs)
