"""10,000 jobs over HTTP, four workers in two languages, one killed: each job is done once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import headway as hw
from headway.contract.definitions import Role
from headway.contract.views import JobsQuery, JobView, StatsQuery
from headway.core.state import State
from headway.runtime.timing import REAL
from tests.client.ten_thousand_worker import LANES
from tests.client.waiting import until
from tests.examples.test_workers import WORKERS, interpreter
from tests.server.rig import Rig, serving

JOBS = 10_000
PRIORITIES = 5
LIMIT_S = 280

NODE = """
import { openSync, writeSync } from "node:fs";
const witness = openSync(process.env.WITNESS, "a");
export default {
  count: ({ n, lane, priority }) => { writeSync(witness, `${lane} ${priority} ${n}\\n`); },
};
"""


async def produce(url: str, token: str) -> None:
    """Send all jobs from three producers at once, in no order of priority."""
    async with hw.Client(url, token) as client:
        jobs = [
            {
                "kind": "count",
                "lane": (lane := LANES[n % 3]),
                "priority": (priority := n * 7 % PRIORITIES),
                "args": {"n": n, "lane": lane, "priority": priority},
            }
            for n in range(JOBS)
        ]
        await asyncio.gather(*(client.send_many_async(jobs[each::3]) for each in range(3)))


async def start(kind: str, folder: Path, url: str, token: str) -> asyncio.subprocess.Process:
    """Start a worker process."""
    witness = folder / "witness"
    if kind == "python":
        command = [sys.executable, "-m", "tests.client.ten_thousand_worker", str(witness)]
    else:
        (folder / "handlers.mjs").write_text(NODE)
        command = [*interpreter("worker.mjs"), str(WORKERS / "worker.mjs")]
        command.append(str(folder / "handlers.mjs"))
    settings = {
        "HEADWAY_URL": url,
        "HEADWAY_TOKEN": token,
        "LANES": ",".join(LANES),
        "LEASE_MS": "5000",
        "CONCURRENCY": "8",
        "WITNESS": str(witness),
    }
    with (folder / f"{kind}.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **settings}, stdout=log, stderr=log
        )


async def stopped(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    async with asyncio.timeout(LIMIT_S):
        await process.wait()


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 60)
async def test_ten_thousand_jobs_are_done_once_in_order_though_a_worker_is_killed(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path}/headway.db?synchronous=normal"
    witness = tmp_path / "witness"
    async with serving(store, chores=True) as rig, AsyncExitStack() as stack:
        await produce(rig.url, rig.tokens[Role.PRODUCER])
        token = await rig.token(Role.WORKER, lanes=LANES)
        workers = []
        for kind in ("python", "node", "python", "node"):
            workers.append(await start(kind, tmp_path, rig.url, token))
            stack.push_async_callback(stopped, workers[-1])
        await until_lines(witness, JOBS // 4)
        workers[1].send_signal(signal.SIGKILL)
        await until_done(rig)
        jobs = await all_jobs(rig)
    counts = Counter(lines(witness))
    assert set(counts) == set(range(JOBS))
    # Twice only for jobs of the killed worker: it had done one, but could not report it.
    again = {json.loads(job.args)["n"] for job in jobs if job.run > 1}
    assert {n for n, times in counts.items() if times > 1} <= again
    assert len(again) <= 8
    for lane in LANES:
        assert_started_in_order([job for job in jobs if job.lane == lane])


def lines(witness: Path) -> list[int]:
    """Return the number of each effect, in the order of writing."""
    if not witness.exists():
        return []
    return [int(line.split()[2]) for line in witness.read_text().splitlines()]


async def until_lines(witness: Path, count: int) -> None:
    async def there() -> bool:
        return len(lines(witness)) >= count

    await until(there)


async def until_done(rig: Rig) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            counts = (await rig.store.read(StatsQuery())).counts
            if counts.get("succeeded", 0) == JOBS:
                return
            await REAL.pause(0.2)


async def all_jobs(rig: Rig) -> list[JobView]:
    found: list[JobView] = []
    cursor = None
    while True:
        query = JobsQuery(states=(State.SUCCEEDED,), runs=True, cursor=cursor, limit=1000)
        page = await rig.store.read(query)
        found += page.rows
        cursor = page.cursor
        if cursor is None:
            return found


def assert_started_in_order(jobs: list[JobView]) -> None:
    """All jobs of a lane existed before the first one started, so they must start by priority."""
    starts = sorted((job.runs[0].claimed_at, job.priority) for job in jobs)
    assert len(starts) > JOBS // 4
    assert [priority for _, priority in starts] == sorted(job.priority for job in jobs)
