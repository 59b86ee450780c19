"""Reading waiting, parked and running jobs takes the same work with any number of ended jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway import Slots
from headway.contract.outcomes import HandedOver, Returned
from headway.contract.views import FlowsQuery, GatesQuery, JobsQuery, Query
from headway.core.job import MAX_BATCH
from headway.core.state import State
from tests.scale.large_store import LANE, large_store

FEW = 1_000
MANY = [
    pytest.param(10_000),
    pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
]
LOCK = Slots("lock:{phone}", 1)
AT_ONCE = 20


async def steps_beside(path: Path, ended: int) -> dict[str, tuple[int, int]]:
    """Return the rows and steps of each read; the jobs arrived after the ended ones."""
    async with large_store(path) as c:
        (lock,) = await c.declare(LOCK)
        for _ in range(ended // MAX_BATCH):
            await c.add(MAX_BATCH)
            await c.finish(await c.take(MAX_BATCH))
        await c.add(AT_ONCE, [lock])
        await c.park_all()
        await c.add(AT_ONCE)
        await c.take(AT_ONCE)
        await c.add(AT_ONCE)
        awaiting = await c.take(AT_ONCE)
        await c.worker.settle(
            *(HandedOver(one.id, one.run, key=one.id, timeout_ms=60_000) for one in awaiting),
            *(Returned(one.id, one.run) for one in awaiting),
        )
        await c.add(AT_ONCE)
        queries: dict[str, Query[Any]] = {
            "waiting": FlowsQuery(lane=LANE, first=5),
            "parked": FlowsQuery(gate=lock.name, first=5),
            "gates": GatesQuery(parked=True),
            "running": JobsQuery(worker=c.worker.id, runs=True),
            "awaiting": JobsQuery(states=(State.AWAITING,), runs=True, newest=True),
        }
        found: dict[str, tuple[int, int]] = {}
        for name, query in queries.items():
            await c.store.read(query)  # names are interned once
            with c.meter.reading() as read:
                page = await c.store.read(query)
            assert read.scanned == 0, name
            found[name] = (len(page.rows), read.steps)
        assert found["running"][0] == AT_ONCE + 1
        assert found["awaiting"][0] == AT_ONCE
        return found


@pytest.mark.parametrize("many", MANY)
async def test_running_jobs_are_read_in_the_same_steps_beside_many_ended_ones(
    path: Path, many: int
) -> None:
    few = await steps_beside(path.with_name("few.db"), FEW)
    beside = await steps_beside(path, many)
    assert all(rows for rows, _ in few.values())
    for name, (rows, steps) in beside.items():
        assert rows == few[name][0], name
        assert steps <= 1.1 * few[name][1], name
