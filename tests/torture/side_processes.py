"""Processes beside the workers: an auditor, the outside world, and an operator."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from headway.contract.definitions import CloseGate, DefineRequest, OpenGate
from headway.contract.operate import ActRequest, Verb
from headway.contract.signals import Decided, Signal, SignalResult
from headway.contract.store import Store
from headway.contract.views import AuditQuery, LanesQuery
from headway.runtime import event_loop
from tests.torture import file_flag
from tests.torture.file_flag import Flag
from tests.torture.plan import VARIED, WORK
from tests.torture.process import opened, store_url, witness_file
from tests.torture.retrying import retry_until_reported
from tests.torture.witness import Witness

SILENT = 0.05
"""The share of calls whose end is never reported."""
TWICE = 0.2
"""The share of webhooks that are sent twice."""
AUDIT_PAUSE_S = 0.02
ACCEPTED = 0.5
"""The share of answered offers that are accepted."""
CANCELLED = 0.05
"""The share of jobs that the operator cancels."""
CLOSED = ("all", f"lane:{WORK}", f"lane:{VARIED}", "kind:plain", "kind:timed")
"""The gates that the operator closes."""


def audit(folder: Path) -> None:
    """Audit and report to the witness repeatedly, until the flag to stop is up."""
    event_loop.run(_audit(folder))


async def _audit(folder: Path) -> None:
    witness = Witness(witness_file(folder))
    store = opened(store_url(folder))
    over = file_flag.over(folder)
    while not over.up:
        differences: list[str] = []
        held, cursor = 0, None
        while True:
            query = AuditQuery(cursor=cursor, limit=10_000)
            page, _ = await retry_until_reported(lambda: store.read(query))  # noqa: B023  (awaited here)
            differences += [f"{one.where}: {one.what}" for one in page.differences]
            held += page.held
            cursor = page.cursor
            if cursor is None:
                break
        witness.note("audit", differences=differences, held=held, permits=page.permits)
        await asyncio.sleep(AUDIT_PAUSE_S)
    await store.close()


def answer(folder: Path, seed: int, within_s: float) -> None:
    """Observe every call that is placed and signal its end, until the flag to stop is up."""
    event_loop.run(_answer(folder, seed, within_s))


async def _answer(folder: Path, seed: int, within_s: float) -> None:
    witness = Witness(witness_file(folder))
    store = opened(store_url(folder))
    chance = random.Random(f"world {seed}")
    over = file_flag.over(folder)
    async with asyncio.TaskGroup() as calls:
        async for fact in _facts(witness_file(folder), over, "called", "offered"):
            if chance.random() < SILENT:
                continue
            times = 2 if chance.random() < TWICE else 1
            seconds = chance.random() * within_s
            run = fact["job"], fact["run"]
            if fact["event"] == "called":
                calls.create_task(_ring_off(store, witness, run, seconds, times))
            else:
                accepts = chance.random() < ACCEPTED
                calls.create_task(_answer_offer(store, witness, run, seconds, accepts=accepts))
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
        reply, unknown = await retry_until_reported(lambda: store.signal(signal))  # noqa: B023  (awaited here)
        # The reply to the first try is lost, but an event is refused only if it was applied before.
        mine = unknown and reply.answer is SignalResult.ALREADY and not told
        answer = SignalResult.APPLIED if mine else reply.answer
        told = True
        witness.note("signalled", job=job, since=since, answer=str(answer))


async def _answer_offer(
    store: Store, witness: Witness, turn: tuple[str, int], seconds: float, *, accepts: bool
) -> None:
    await asyncio.sleep(seconds)
    job, run = turn
    said = Decided.ACCEPTED if accepts else Decided.DECLINED
    signal = Signal(key=f"{job}:{run}", event=uuid4().hex, decided=said)
    since = time.monotonic_ns()
    reply, unknown = await retry_until_reported(lambda: store.signal(signal))
    applied = unknown and reply.answer is SignalResult.ALREADY
    answer = SignalResult.APPLIED if applied else reply.answer
    witness.note("answered", job=job, run=run, since=since, said=str(said), answer=str(answer))


def operate(folder: Path, seed: int) -> None:
    """Cancel jobs and briefly close lanes and kinds, until no more jobs are created."""
    event_loop.run(_operate(folder, seed))


async def _operate(folder: Path, seed: int) -> None:
    witness = Witness(witness_file(folder))
    store = opened(store_url(folder))
    chance = random.Random(f"operator {seed}")
    enough = file_flag.enough(folder)
    async with asyncio.TaskGroup() as moves:
        moves.create_task(_close_repeatedly(store, witness, chance, enough))
        async for fact in _facts(witness_file(folder), enough, "acked"):
            for job in fact["jobs"]:
                if chance.random() < CANCELLED:
                    moves.create_task(_cancel(store, witness, job, chance.random() ** 4))
    await store.close()


async def _cancel(store: Store, witness: Witness, job: str, seconds: float) -> None:
    await asyncio.sleep(seconds)
    act = ActRequest(request=uuid4().hex, ids=(job,), verb=Verb.CANCEL, author="operator")
    replies, _ = await retry_until_reported(lambda: store.act(act))
    witness.note("cancelled", job=job, answer=str(replies[0].answer))


async def _close_repeatedly(
    store: Store, witness: Witness, chance: random.Random, enough: Flag
) -> None:
    while not enough.up:
        await asyncio.sleep(chance.uniform(0.5, 2.0))
        gate = chance.choice(CLOSED)
        close, reopen = (
            DefineRequest(items=(item,), author="operator")
            for item in (CloseGate(name=gate), OpenGate(name=gate))
        )
        await retry_until_reported(lambda: store.define(close))  # noqa: B023  (awaited here)
        from_ms = time.time_ns() // 1_000_000
        await asyncio.sleep(chance.uniform(0.1, 0.8))
        to_ms = time.time_ns() // 1_000_000
        await retry_until_reported(lambda: store.define(reopen))  # noqa: B023  (awaited here)
        witness.note("closed", gate=gate, from_ms=from_ms, to_ms=to_ms)


async def _facts(path: Path, over: Flag, *events: str) -> AsyncIterator[dict[str, Any]]:
    """Follow the witness's file; yield the facts of these events."""
    parts = [f'"event": "{event}"'.encode() for event in events]
    with path.open("rb") as file:
        rest = b""
        while not over.up:
            read = file.read(1 << 20)
            if not read:
                await asyncio.sleep(0.01)
                continue
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                if any(part in line for part in parts):
                    with suppress(ValueError):  # a line torn by a kill
                        yield json.loads(line)


async def unfinished(store: Store, lanes: tuple[str, ...] = ()) -> int:
    """Return jobs that are not final, in these lanes or in all."""
    return sum(lane.unfinished for lane in await store.read(LanesQuery(names=lanes or None)))
