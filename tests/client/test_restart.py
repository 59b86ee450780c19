"""A server killed with -9 under producers and workers: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import headway as hw
from headway.contract.views import JobsQuery
from headway.core.state import State
from headway.runtime.timing import REAL
from tests.client.server_process import ServerProcess
from tests.client.waiting import Ended, at_work, until

JOBS = 200


@pytest.mark.slow
async def test_server_killed_under_load_loses_nothing_and_runs_each_job_once(
    tmp_path: Path,
) -> None:
    app, ended = hw.App("memory://"), Ended()

    @app.job(lane="mail")
    async def send(n: int) -> None:
        ended.add(n)
        await REAL.pause(0.002)

    async def produce(client: hw.Client) -> None:
        for n in range(JOBS):
            # The key ensures that it is one job, however often it is sent.
            await client.send_async("send", n=n, lane="mail", key=f"n-{n}")

    store = f"sqlite:///{tmp_path}/headway.db"
    with ServerProcess(store, tmp_path) as server:
        client = hw.Client(server.url, patience="30s")
        async with at_work(server.url, app, lease="1m", concurrency=4):
            producing = asyncio.create_task(produce(client))
            await ended.until(20)
            server.kill()
            await asyncio.to_thread(server.start)
            await ended.until(100)
            server.kill()
            await asyncio.to_thread(server.start)
            await producing

            async def all_done() -> bool:
                query = JobsQuery(lane="mail", states=(State.SUCCEEDED,), limit=1000)
                return len((await client.read_async(query)).rows) == JOBS

            await until(all_done)
        await client.close_async()
    # At least once, and repeated only for jobs that were running when the server was killed.
    assert set(ended.all) == set(range(JOBS))
    assert len(ended.all) - JOBS <= 2 * 4
