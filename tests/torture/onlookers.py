"""Two processes that look on: one audits all the time, one is the outside world that calls back."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

from headway.contract.signals import Heard, Signal
from headway.contract.store import Store
from headway.contract.views import AuditQuery, LanesQuery
from headway.runtime import event_loop
from headway.stores import open_store
from tests.torture import flag
from tests.torture.flag import Flag
from tests.torture.patience import until_told
from tests.torture.process import store_url, witness_file
from tests.torture.witness import Witness

SILENT = 0.05
"""The share of calls of which nobody ever hears again."""
TWICE = 0.2
"""The share of webhooks that come twice."""
AUDIT_PAUSE_S = 0.02


def audit(folder: Path) -> None:
    """Audits, and tells the witness each time, until it is told to stop."""
    event_loop.run(_audit(folder))


async def _audit(folder: Path) -> None:
    witness = Witness(witness_file(folder))
    store = open_store(store_url(folder))
    over = flag.over(folder)
    while not over.up:
        differences: list[str] = []
        held, cursor = 0, None
        while True:
            query = AuditQuery(cursor=cursor, limit=10_000)
            page, _ = await until_told(lambda: store.read(query))  # noqa: B023  (awaited here)
            differences += [f"{one.where}: {one.what}" for one in page.differences]
            held += page.held
            cursor = page.cursor
            if cursor is None:
                break
        witness.note("audit", differences=differences, held=held, permits=page.permits)
        await asyncio.sleep(AUDIT_PAUSE_S)
    await store.close()


def answer(folder: Path, seed: int, within_s: float) -> None:
    """Hears of every call that is made, and signals its end, until it is told to stop."""
    event_loop.run(_answer(folder, seed, within_s))


async def _answer(folder: Path, seed: int, within_s: float) -> None:
    witness = Witness(witness_file(folder))
    store = open_store(store_url(folder))
    chance = random.Random(f"world {seed}")
    async with asyncio.TaskGroup() as calls:
        async for job, run in _called(witness_file(folder), flag.over(folder)):
            if chance.random() < SILENT:
                continue
            times = 2 if chance.random() < TWICE else 1
            seconds = chance.random() * within_s
            calls.create_task(_ring_off(store, witness, (job, run), seconds, times))
    await store.close()


async def _ring_off(
    store: Store, witness: Witness, call: tuple[str, int], seconds: float, times: int
) -> None:
    await asyncio.sleep(seconds)
    job, run = call
    event, told = uuid4().hex, False
    for _ in range(times):
        since = time.monotonic_ns()
        signal = Signal(key=f"{job}:{run}", event=event)
        reply, unknown = await until_told(lambda: store.signal(signal))  # noqa: B023  (awaited here)
        # What was said of the first try is lost, but an event is refused only as applied before.
        mine = unknown and reply.answer is Heard.ALREADY and not told
        answer = Heard.APPLIED if mine else reply.answer
        told = True
        witness.note("signalled", job=job, since=since, answer=str(answer))


async def _called(path: Path, over: Flag) -> AsyncIterator[tuple[str, int]]:
    """Follows the witness's file."""
    with path.open("rb") as file:
        rest = b""
        while not over.up:
            read = file.read(1 << 20)
            if not read:
                await asyncio.sleep(0.01)
                continue
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                if b'"called"' in line:
                    fact = json.loads(line)
                    yield fact["job"], fact["run"]


async def unfinished(store: Store, lanes: tuple[str, ...] = ()) -> int:
    """Jobs that are not final, in these lanes or in all."""
    return sum(lane.unfinished for lane in await store.read(LanesQuery(names=lanes or None)))
