"""The cost of an open `headway top`: CPU of the store's processes while it is refreshed.

Run: `python -m bench.top [JOBS]`. On SQLite and in memory the store runs in the process of the
screen, and the figure includes all work of a refresh except painting.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from uuid import uuid4

import psutil

from headway.cli.top.screen import EACH_S
from headway.cli.top.snapshot import Queries, ServerQueries, SnapshotReader, View
from headway.client.address import read_address
from headway.client.remote_store import RemoteStore
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareGate, DeclareLane, DefineRequest, LaneSpec
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import NewJob
from headway.stores import open_store
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port
from tests.servers.redis import RedisServer

LANES = 10
RUNNING = 40
LOOKS = 30
LINE = GateUse(name="line", template="line", shared=True)


def cpu_s(pids: list[int]) -> float:
    """Return the CPU seconds of processes and their children, except those that have exited."""
    total = 0.0
    for pid in pids:
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                total += times.user + times.system
    return total


async def seed(store: Store, jobs: int) -> None:
    """Fill ten lanes, three with a target; a tenth of the jobs needs a gate, and forty run."""
    gates = (Slots("line", 30), Rate("sms", 10_000, "1h"), Pool("numbers", {"a": 4, "b": 4}))
    lanes = [DeclareLane(spec=LaneSpec(name=f"lane{n}", target_ms=60_000)) for n in range(3)]
    items = (*(DeclareGate(spec=one) for one in gates), *lanes)
    await store.define(DefineRequest(items=items, author="bench"))
    for start in range(0, jobs, 1_000):
        await store.enqueue(
            [
                NewJob(
                    id=str(uuid4()),
                    kind="ring",
                    lane=f"lane{n % LANES}",
                    gates=(LINE,) if n % 10 == 0 else (),
                    args=b'{"phone":"+15550100","note":"some words"}',
                )
                for n in range(start, start + 1_000)
            ]
        )
    lanes_asked = tuple((f"lane{n}", 1) for n in range(LANES))
    await store.claim(
        ClaimRequest(
            worker="w" * 32,
            request=1,
            lanes=lanes_asked,
            n=RUNNING,
            free=RUNNING,
            lease_ms=3_600_000,
        )
    )


async def measure(
    name: str, store: Store, pids: Callable[[], list[int]], queries: Queries | None = None
) -> None:
    for view in (View.LANES, View.RUNNING, View.WAITING, View.DEAD):
        reader = SnapshotReader(store, queries)
        for _ in range(10):
            await reader.read(view)
        before, began = cpu_s(pids()), time.monotonic()
        for _ in range(LOOKS):
            await reader.read(view, fresh=False)
            await asyncio.sleep(EACH_S)
        share = (cpu_s(pids()) - before) / (time.monotonic() - began)
        print(f"{name:<12} {view:<8} {100 * share:5.2f} % of a core", flush=True)


async def main(jobs: int) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        postgres, redis = stack.enter_context(PostgresServer()), stack.enter_context(RedisServer())
        file = f"sqlite:///{folder}/top.db?synchronous=normal"
        places = {
            "memory": ("memory://", lambda: [os.getpid()]),
            "sqlite": (file, lambda: [os.getpid()]),
            "postgresql": (postgres.url, lambda: [postgres.pid]),
            "redis": (redis.url, lambda: [redis.pid]),
        }
        for name, (url, pids) in places.items():
            store = open_store(url)
            await seed(store, jobs)
            await measure(name, store, pids)
            await store.close()
        port = free_port()
        line = [sys.executable, "-m", "headway", "serve", "--port", str(port), "--store", file]
        server = stack.enter_context(
            subprocess.Popen(  # noqa: ASYNC220  (nothing else runs meanwhile)
                line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        remote = RemoteStore(read_address(f"http://127.0.0.1:{port}"), patience_s=60.0)
        # This read is retried until the server has started; refreshes are not.
        await remote.read(StatsQuery())
        await measure("a server", remote, lambda: [server.pid], ServerQueries(remote.ask))
        await remote.close()
        server.terminate()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
