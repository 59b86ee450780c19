"""HTTP: enqueue one, enqueue by 100, pull and settle by 100; compared with a route without work.

The client is a separate process, on the other core.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from bench.bench import Bench
from bench.child import ChildFailed
from bench.http import serving
from bench.http.client import HttpFailed, call_all, post
from bench.notebook import HEADWAY
from bench.places.place import Place

ONE = "enqueue one over HTTP, 32 connections"
BULK = "enqueue by 100 over HTTP"
PULL = "pull and settle by 100 over HTTP"
CONNECTIONS = 32
FEW = 4
BATCH = 100
JOB = {"kind": "noop", "args": {"phone": "+14155550100", "text": "x" * 150}, "lane": "http"}


def over_http(bench: Bench) -> None:
    """Measure all three, and compare them with the goals."""
    one, many = 10 * bench.scale.single, bench.scale.bulk
    figures = bench.in_turns(
        {
            HEADWAY: lambda place: _one(serving.engine(place.url), one),
            serving.NOTHING: lambda _: _one(serving.nothing(), one),
        }
    )
    for name, values in figures.items():
        bench.add(ONE, name, "/s", values)
    ours, bare = (bench.notebook.find(ONE, name) for name in (HEADWAY, serving.NOTHING))
    if ours and bare:
        bench.goal("enqueue one over HTTP against nothing", ours.median / bare.median, least=0.5)
    _held_to(bench, BULK, lambda place: _bulk(place, many), least=30_000)
    _held_to(bench, PULL, lambda place: _pull(place, many), least=20_000)


def _held_to(bench: Bench, case: str, measure: Callable[[Place], float], *, least: float) -> None:
    for name, values in bench.in_turns({HEADWAY: measure}).items():
        figure = bench.add(case, name, "jobs/s", values)
        bench.goal(f"{case}, of {least:,.0f} a second", figure.median / least, least=1)


def _one(server: AbstractContextManager[int], count: int) -> float:
    with server as port:
        return asyncio.run(
            _calls(port, CONNECTIONS, count, post("/v1/jobs", json.dumps(JOB).encode()))
        )


def _bulk(place: Place, count: int) -> float:
    body = json.dumps([JOB] * BATCH).encode()
    with serving.engine(place.url) as port:
        return BATCH * asyncio.run(_calls(port, FEW, count // BATCH, post("/v1/jobs", body)))


def _pull(place: Place, count: int) -> float:
    body = json.dumps([JOB] * BATCH).encode()
    with serving.engine(place.url) as port:
        asyncio.run(_calls(port, FEW, count // BATCH, post("/v1/jobs", body)))
        begin = time.perf_counter()
        pulled = asyncio.run(_pull_all(port))
        seconds = time.perf_counter() - begin
    if pulled != count:
        message = f"{pulled} of {count} jobs were pulled"
        raise ChildFailed(message)
    return count / seconds


async def _calls(port: int, connections: int, count: int, request: bytes) -> float:
    """Send the same request `count` times; return requests per second."""
    left = count

    def following() -> bytes | None:
        nonlocal left
        left -= 1
        return request if left >= 0 else None

    begin = time.perf_counter()
    try:
        await call_all(port, connections, following)
    except HttpFailed as failure:
        raise ChildFailed(str(failure)) from failure
    return count / (time.perf_counter() - begin)


async def _pull_all(port: int) -> int:
    """Let several workers pull by 100 and settle until the lane is empty; return jobs settled."""
    pulled = 0

    async def work(worker: str) -> None:
        nonlocal pulled
        claims = json.dumps({"worker": worker, "lanes": ["http"], "max": BATCH}).encode()
        held: list[dict[str, object]] = []
        ended = False

        def following() -> bytes | None:
            if held:
                outcomes = [
                    {"job": job["id"], "run": job["run"], "outcome": "succeeded"} for job in held
                ]
                body = json.dumps({"worker": worker, "outcomes": outcomes}).encode()
                return post("/v1/settlements", body)
            return None if ended else post("/v1/claims", claims)

        def on_reply(_status: int, body: bytes) -> None:
            nonlocal ended, pulled
            reply = json.loads(body)
            if "verdicts" in reply:
                pulled += reply["verdicts"].count("done")
                held.clear()
            else:
                held.extend(reply["jobs"])
                ended = not held and not reply["again"]

        await call_all(port, 1, following, on_reply)

    await asyncio.gather(*(work(f"worker-{n}") for n in range(FEW)))
    return pulled
