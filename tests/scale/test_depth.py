"""With a million scheduled jobs, an enqueue and a claim do the same work as with a few."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.contract.claims import Claimed
from tests.scale.large_store import HOUR_MS, LargeStore, large_store
from tests.scale.meter import Reading

FEW = 1_000
FEW_AND_MANY = [
    pytest.param(20_000),
    pytest.param(250_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
]


@pytest.mark.parametrize("scheduled", FEW_AND_MANY)
async def test_enqueue_and_claim_beside_many_scheduled_jobs_write_the_same_rows(
    path: Path, scheduled: int
) -> None:
    async with large_store(path) as c:
        await c.add(FEW, in_ms=HOUR_MS)
        shallow = await costs(c)
        await c.add(scheduled - FEW, in_ms=HOUR_MS)
        deep = await costs(c)
        assert {what: rows for what, (rows, _) in deep.items()} == {
            what: rows for what, (rows, _) in shallow.items()
        }
        for what, (_, steps) in deep.items():
            assert steps <= 1.5 * shallow[what][1], what


@pytest.mark.parametrize("waiting", FEW_AND_MANY)
async def test_claim_from_many_waiting_jobs_writes_the_same_rows(path: Path, waiting: int) -> None:
    async with large_store(path) as c:
        await c.add(FEW)
        shallow = await costs(c)
        await c.add(waiting - FEW)
        deep = await costs(c)
        for what, (rows, steps) in deep.items():
            assert rows == shallow[what][0], what
            assert steps <= 1.5 * shallow[what][1], what


OPERATIONS = ("enqueue", "schedule", "claim 1", "claim 50", "settle", "sweep")


async def costs(c: LargeStore) -> dict[str, tuple[int, int]]:
    """Return rows written and steps done, by operation."""
    for what in OPERATIONS:
        await cost(c, what)  # names are interned once
    sums = dict.fromkeys(OPERATIONS, (0, 0))
    for _ in range(3):
        for what, (rows, steps) in sums.items():
            read = await cost(c, what)
            assert read.scanned == 0, what
            sums[what] = (rows + read.rows, steps + read.steps)
    return sums


async def cost(c: LargeStore, what: str) -> Reading:
    """Perform one operation; the setup it needs is not counted."""
    started: list[Claimed] = []
    verb, _, n = what.partition(" ")
    if verb in {"claim", "settle"}:
        await c.add(50)
    if verb == "settle":
        started = await c.take(50)
    with c.meter.reading() as read:
        if verb == "enqueue":
            await c.add(1)
        elif verb == "schedule":
            await c.add(1, in_ms=HOUR_MS)
        elif verb == "claim":
            started = await c.take(int(n))
        elif verb == "settle":
            await c.finish(started)
        else:
            await c.store.sweep(1_000)
    if verb == "claim":
        await c.finish(started)
    return read
