"""The cost of the dashboard on a large store: response time of each page, CPU of open pages.

Run: `python -m bench.dashboard [JOBS] [STORE]`. STORE is sqlite, postgresql or redis, which is then
started, or a URL; a store that already has jobs is used unchanged. Half of the jobs arrived first
and have ended, so that a listing by arrival finds no waiting or running job at its start.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from statistics import median
from urllib.parse import quote

import httpx
from uuid_utils import uuid7

from bench.top import cpu_s
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import (
    DeclareEntry,
    DeclareGate,
    DeclareLane,
    DefineRequest,
    EntrySpec,
    LaneSpec,
)
from headway.contract.outcomes import Died, Outcome, SettleRequest, Succeeded
from headway.contract.store import Store
from headway.contract.views import GatesQuery, JobsQuery
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import NewJob
from headway.core.state import State
from headway.core.timetable.schedule import At
from headway.stores import open_store
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port
from tests.servers.redis import RedisServer

SYSTEMS = ("lanes", "calls", "field_service", "notifications", "automations")
LANES, TENANTS = 10, 50
RUNNING = 40
DEAD_EACH = 40
"""One of this many ended jobs is dead."""
ENTRIES = 60
TIMES = 5
"""Requests per page; the pause between them is longer than the cache time."""
PAUSE_S = 1.1
SETTLE_S, OPEN_S = 3.0, 20.0
LINE = GateUse(name="line", template="line", shared=True)
DAY_MS = 86_400_000


def job(n: int, lane: str, *gates: GateUse) -> NewJob:
    """Return the n-th job; each has a tenant, a subject and arguments."""
    return NewJob(
        id=str(uuid7()),
        kind=f"kind{n % 5}",
        lane=lane,
        tenant=f"tenant{n % TENANTS}",
        subject=f"subject{n % 10_000}",
        gates=gates,
        args=b'{"phone":"+15550100","note":"some words"}',
    )


async def claim(store: Store, worker: str, request: int, n: int) -> list[tuple[str, int]]:
    lanes = tuple((f"lane{one}", 1) for one in range(LANES))
    asked = ClaimRequest(worker=worker, request=request, lanes=lanes, n=n, free=n, lease_ms=DAY_MS)
    return [(one.id, one.run) for one in (await store.claim(asked)).jobs]


async def fill(store: Store, jobs: int) -> None:
    """Fill ten lanes: half of the jobs have ended, forty run, a tenth of the rest needs a gate."""
    lanes = [DeclareLane(spec=LaneSpec(name=f"lane{n}", target_ms=60_000)) for n in range(3)]
    gates = (DeclareGate(spec=Slots("line", 30)), DeclareGate(spec=Slots("phone:{phone}", 1)))
    entries = [
        DeclareEntry(
            spec=EntrySpec(
                name=f"entry{n}",
                schedule=At(f"{n % 24:02}:{n * 17 % 60:02}"),
                job=job(n, f"lane{n % LANES}"),
            )
        )
        for n in range(ENTRIES)
    ]
    await store.define(DefineRequest(items=(*gates, *lanes, *entries), author="bench"))
    ended = 0
    for request in range(1, jobs // 2_000 + 1):
        await store.enqueue([job(n, f"lane{n % LANES}") for n in range(1_000)])
        outcomes: list[Outcome] = []
        for id_, run in await claim(store, "w" * 32, request, 1_000):
            ended += 1
            outcomes.append(
                Died(id_, run, reason="no", error=f"TimeoutError: {ended} s")
                if ended % DEAD_EACH == 0
                else Succeeded(id_, run, result=None)
            )
        await store.settle(SettleRequest(worker="w" * 32, outcomes=tuple(outcomes)))
    for start in range(0, jobs // 2, 1_000):
        await store.enqueue(
            [
                job(n, f"lane{n % LANES}", *((LINE,) if n % 10 == 0 else ()))
                for n in range(start, start + 1_000)
            ]
        )
    for worker in range(4):
        await claim(store, f"{worker}" * 32, 1, RUNNING // 4)


async def pages(store: Store) -> list[str]:
    """Return the paths of all pages, some with filters or details."""
    newest = await store.read(JobsQuery(newest=True, limit=1))
    dead = await store.read(JobsQuery(states=(State.DEAD,), newest=True, limit=1))
    (line,) = (await store.read(GatesQuery(names=("line",)))).rows
    shown = [
        *(one.id for one in (*newest.rows, *dead.rows)),
        *(one.job for one in line.holders[:1]),
    ]
    return [
        "", "lanes", "lanes?lane=lane3", "gates", "gates?gate=line", "gates?gate=lane%3Alane3",
        "jobs", *(f"jobs?state={one}" for one in State), "jobs?lane=lane3&state=running",
        "jobs?lane=lane3&state=waiting&order=oldest", "jobs?tenant=tenant7&kind=kind2",
        "jobs?tenant=tenant7&subject=subject7", *(f"jobs/{one}" for one in shown),
        "dead", "dead?lane=lane3", "timetable", "timetable?view=day", "timetable?entry=entry3",
        "cascades", "workers", "trail", "trail?author=bench", "queue",
        f"-/do/retry-all-dead?lane={quote('lane3')}", "calls", "calls/campaigns", "field-service",
        "field-service/technicians", "notifications", "notifications?status=SENT",
        "notifications?recipient=ada", "notifications/templates", "automations",
    ]  # fmt: skip


async def measure(url: str, asked: Sequence[str], pid: int) -> bool:
    """Print the response time of each page and the CPU of open ones; return whether they pass."""
    slowest = 0.0
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        for path in asked:
            took: list[float] = []
            for _ in range(TIMES):
                await asyncio.sleep(PAUSE_S)
                began = time.perf_counter()
                reply = await http.get(f"/ui/{path}".rstrip("/"))
                took.append(1000 * (time.perf_counter() - began))
                reply.raise_for_status()
            slowest = max(slowest, *took)
            print(f"/ui/{path:<45} {median(took):6.0f} ms, at most {max(took):6.0f}", flush=True)
        idle = await _cpu(pid)
        worst = 0.0
        for path in ("", "lanes", "gates?gate=line", "jobs", "dead", "timetable", "workers"):
            headers = {"Accept": "text/event-stream"}
            async with http.stream("GET", f"/ui/{path}".rstrip("/"), headers=headers) as reply:
                reading = asyncio.create_task(_drain(reply))
                share = await _cpu(pid) - idle
                reading.cancel()
            worst = max(worst, share)
            print(f"/ui/{path:<45} {share:6.2f} % of a core more than idle", flush=True)
    print(f"idle {idle:.2f} % of a core; slowest page {slowest:.0f} ms (300 wanted); ", end="")
    print(f"an open page {worst:.2f} % of a core at most (2 wanted)")
    return slowest <= 300 and worst < 2


async def _cpu(pid: int) -> float:
    """Return the percentage of a core that a process uses."""
    await asyncio.sleep(SETTLE_S)
    before, began = cpu_s([pid]), time.monotonic()
    await asyncio.sleep(OPEN_S)
    return 100 * (cpu_s([pid]) - before) / (time.monotonic() - began)


async def _drain(reply: httpx.Response) -> None:
    async for _ in reply.aiter_lines():
        pass


async def main(jobs: int, url: str, folder: str) -> bool:
    store = open_store(url)
    if not (await store.read(JobsQuery(limit=1))).rows:
        began = time.monotonic()
        await fill(store, jobs)
        print(f"{jobs:,} jobs written in {time.monotonic() - began:.0f} s", flush=True)
    asked = await pages(store)
    await store.close()
    port = free_port()
    line = [sys.executable, "-m", "headway", "serve", "--port", str(port), "--store", url]
    line += ["--no-work", *(word for one in SYSTEMS for word in ("--system", one))]
    server = subprocess.Popen(  # noqa: ASYNC220  (nothing else runs meanwhile)
        line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        at = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=at) as http:
            while server.poll() is None:
                try:
                    await http.get("/healthz")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        return await measure(at, asked, server.pid)
    finally:
        server.terminate()
        server.wait()


@contextmanager
def store_url(store: str, folder: str) -> Generator[str]:
    """Yield the URL of a store named by its type, started for this block, or the given URL."""
    if store == "sqlite":
        yield f"sqlite:///{folder}/dashboard.db?synchronous=normal"
    elif store in {"postgresql", "redis"}:
        with PostgresServer() if store == "postgresql" else RedisServer() as server:
            yield server.url
    else:
        yield store


if __name__ == "__main__":
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with (
        tempfile.TemporaryDirectory() as own_folder,
        store_url(sys.argv[2] if len(sys.argv) > 2 else "sqlite", own_folder) as its_url,
    ):
        sys.exit(0 if asyncio.run(main(many, its_url, own_folder)) else 1)
