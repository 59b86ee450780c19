"""A server under load, killed with -9 repeatedly: what it acknowledged is never lost.

Producers repeat a send under the same id until it is answered; workers repeat a claim under the
same number and a settlement under the same run: as the documentation asks of clients.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx

from headway.contract.views import AuditQuery, JobsQuery
from headway.core.state import State
from headway.stores import open_store
from tests.servers.process import free_port
from tests.torture.checker import Violation
from tests.torture.site import Site

LANES = ("letters", "calls", "rest")
PRODUCERS, WORKERS = 6, 4
LEASE = "3s"
BATCH = 20
PATIENCE_S = 60.0
"""For the last job to end after the last kill."""
TRANSIENT = {429, 502, 503, 504}


@dataclass(slots=True)
class Seen:
    """What the clients saw.

    Attributes:
        sent: ids that a client tried to send.
        acked: ids that the server acknowledged.
        effects: the runs of each job that touched the world.
        done: how often a settlement of the job was answered `done`.
        kills: kills of the server.
        repeats: calls that got no reply.
    """

    sent: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    effects: dict[str, list[int]] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    repeats: int = 0


def serve_and_kill(
    site: Site, seed: int, jobs: int, kills: int, say: Callable[[str], None]
) -> tuple[list[str], list[Violation]]:
    """Send and work off jobs while the server is killed repeatedly.

    Returns:
        Lines to print, and violations.
    """
    seen = Seen()
    violations = asyncio.run(_run(site, seed, jobs, kills, say, seen))
    twice = sum(len(runs) > 1 for runs in seen.effects.values())
    lines = [
        f"{len(seen.acked)} of {len(seen.sent)} sends were acknowledged; {seen.kills} kills",
        f"{seen.repeats} calls had no answer and were repeated; {twice} jobs ran twice, "
        "as their lease was lost",
    ]
    return lines, violations


async def _run(
    site: Site, seed: int, jobs: int, kills: int, say: Callable[[str], None], seen: Seen
) -> list[Violation]:
    port = free_port()
    stop, enough = asyncio.Event(), asyncio.Event()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        working = [
            asyncio.create_task(_work(client, f"worker-{n}", stop, seen)) for n in range(WORKERS)
        ]
        sending = [
            asyncio.create_task(
                _send(client, random.Random(f"{seed}.{n}"), jobs // PRODUCERS, enough, seen)
            )
            for n in range(PRODUCERS)
        ]
        server = await _start(site.url, port, client)
        for n in range(kills):
            await asyncio.sleep(random.Random(f"{seed}.kill.{n}").uniform(0.1, 1.5))
            server.send_signal(signal.SIGKILL)
            await server.wait()
            seen.kills += 1
            say(f"killed {seen.kills} times; {len(seen.acked)} acknowledged")
            server = await _start(site.url, port, client)
        enough.set()
        try:
            await asyncio.wait_for(asyncio.gather(*sending), PATIENCE_S)
            await _work_off(client)
        finally:
            stop.set()
            await asyncio.gather(*working)
            server.send_signal(signal.SIGTERM)
            await server.wait()
    return await judge(site.own_url, seen)


async def _start(store: str, port: int, client: httpx.AsyncClient) -> Process:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headway", "serve", f"--port={port}", f"--store={store}"),
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "HEADWAY_LOG_LEVEL": "error"},
    )
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            if (await client.get("/healthz")).status_code == httpx.codes.OK:
                return server
        except httpx.HTTPError:
            await asyncio.sleep(0.02)
    message = "the server does not answer"
    raise RuntimeError(message)


async def _ask(
    client: httpx.AsyncClient, path: str, body: object, seen: Seen, **headers: str
) -> Any:
    """Repeat the same request until there is a reply."""
    while True:
        try:
            reply = await client.post(path, json=body, headers=headers)
        except httpx.HTTPError:
            seen.repeats += 1
            await asyncio.sleep(0.02)
            continue
        if reply.status_code in TRANSIENT:
            await asyncio.sleep(0.02)
            continue
        if reply.status_code >= httpx.codes.BAD_REQUEST:
            message = f"{path}: {reply.status_code} {reply.text[:300]}"
            raise RuntimeError(message)
        return reply.json()


async def _send(
    client: httpx.AsyncClient,
    draw: random.Random,
    count: int,
    enough: asyncio.Event,
    seen: Seen,
) -> None:
    """Send at least this many jobs, and continue as long as the server is being killed."""
    left = count
    while left > 0 or not enough.is_set():
        size = 1 if draw.random() < 0.8 else draw.randint(2, BATCH)
        left -= size
        made = [_job(draw) for _ in range(size)]
        if size > 1 and draw.random() < 0.5:
            # Ids that the server derives from the header: they are known only from the reply.
            for job in made:
                del job["id"]
            key = str(UUID(int=draw.getrandbits(128)))
            reply = await _ask(client, "/v1/jobs", made, seen, **{"idempotency-key": key})
            ids = [one["id"] for one in reply["jobs"]]
            seen.sent.update(ids)
        else:
            seen.sent.update(job["id"] for job in made)
            reply = await _ask(client, "/v1/jobs", made if size > 1 else made[0], seen)
            ids = [one["id"] for one in reply["jobs"]] if size > 1 else [reply["id"]]
        seen.acked.update(ids)


def _job(draw: random.Random) -> dict[str, Any]:
    return {
        "id": str(UUID(int=draw.getrandbits(128), version=4)),
        "kind": "write",
        "lane": draw.choice(LANES),
        "priority": draw.choice([1, 512, 512, 900]),
        "args": {"n": draw.randint(0, 9)},
        "subject": f"s{draw.randint(0, 99)}",
    }


async def _work(client: httpx.AsyncClient, name: str, stop: asyncio.Event, seen: Seen) -> None:
    request = 0
    while not stop.is_set():
        request += 1
        claim = {"worker": name, "request": request, "lanes": list(LANES), "max": BATCH}
        reply = await _ask(client, "/v1/claims", claim | {"lease": LEASE, "wait": "1s"}, seen)
        for job in reply["jobs"]:
            seen.effects.setdefault(job["id"], []).append(job["run"])
        outcomes = [
            {"job": job["id"], "run": job["run"], "outcome": "succeeded"} for job in reply["jobs"]
        ]
        if not outcomes:
            continue
        settled = {"worker": name, "outcomes": outcomes}
        verdicts = (await _ask(client, "/v1/settlements", settled, seen))["verdicts"]
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            seen.done[outcome["job"]] += verdict == "done"


async def _work_off(client: httpx.AsyncClient) -> None:
    """Wait until each acknowledged job is settled, as far as its worker knows."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        reply = await client.get("/v1/stats")
        counts: dict[str, int] = reply.json()["counts"] if reply.is_success else {"?": 1}
        if not sum(
            n for state, n in counts.items() if state not in {"succeeded", "dead", "cancelled"}
        ):
            return
        await asyncio.sleep(0.1)
    message = f"after {PATIENCE_S:.0f} s jobs are left"
    raise RuntimeError(message)


async def judge(url: str, seen: Seen) -> list[Violation]:
    """Compare what was acknowledged and seen with the store's content."""
    store = open_store(url)
    found: list[Violation] = []
    stored: dict[str, tuple[State, int]] = {}
    cursor: str | None = None
    while True:
        page = await store.read(JobsQuery(limit=1000, cursor=cursor))
        stored |= {job.id: (job.state, job.run) for job in page.rows}
        cursor = page.cursor
        if cursor is None:
            break
    found += [Violation("lost", one) for one in sorted(seen.acked - stored.keys())]
    found += [Violation("from nowhere", one) for one in sorted(stored.keys() - seen.sent)]
    for job, (state, run) in stored.items():
        runs = seen.effects.get(job, [])
        if state is not State.SUCCEEDED:
            found.append(Violation("not settled", f"{job} is {state}"))
        if not runs:
            found.append(Violation("never done", job))
        if len(set(runs)) != len(runs):
            found.append(Violation("one run handed out twice", f"{job}: {json.dumps(runs)}"))
        if any(one > run for one in runs):
            found.append(Violation("a run that the store does not know", f"{job}: {runs}"))
        if seen.done[job] > 1:
            found.append(Violation("settled twice", job))
    audit = await store.read(AuditQuery())
    found += [Violation("audit", f"{one.where}: {one.what}") for one in audit.differences]
    await store.close()
    return found
