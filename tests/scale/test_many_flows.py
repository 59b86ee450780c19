"""With many flows, a claim reads little of each and still starts everything that can start."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway import Slots
from headway.contract.definitions import CloseGate, SetGate
from headway.stores.ledger.feeding import FEED_REST_MS, FEW_FLOWS
from headway.stores.ledger.lane_claim import MANY_FLOWS
from headway.stores.sqlite.tables.job_statements import HEADS, PARKED_HEADS
from headway.testing.jobs import use_of
from tests.scale.large_store import large_store

FLOWS, DEEP = 60, 20


async def test_one_free_permit_among_many_flows_reads_the_heads_of_the_first(path: Path) -> None:
    async with large_store(path) as c:
        phone = Slots("phone:{phone}", 1)
        line, _ = await c.declare(Slots("line", 1), phone)
        for n in range(FLOWS):
            gates = [[line, use_of(phone, phone=f"{n}-{deep}")] for deep in range(DEEP)]
            for one in gates:
                await c.add(1, one, kind=f"kind-{n}")
        for _ in range(3):
            with c.meter.reading() as read:
                started = await c.take(100)
                assert len(started) == 1
            # Two heads of each of 60 flows take 7,600 steps; those of the first eight 5,500.
            assert read.steps < 7_000
            assert read.statements[HEADS] == MANY_FLOWS
            assert read.scanned == 0
            await c.finish(started)


async def test_everything_startable_among_many_flows_starts_behind_the_rest(
    path: Path,
) -> None:
    async with large_store(path) as c:
        phone = Slots("phone:{phone}", 1)
        line, _ = await c.declare(Slots("line", 1_000), phone)
        for n in range(12):
            same = use_of(phone, phone=f"{n}")
            await c.add(DEEP, [line, same], kind=f"kind-{n}")
            await c.add(10, [line], kind=f"kind-{n}")
        started = await c.take(400)
        # The first job of each flow for that phone, and all jobs behind those that wait for it.
        assert len(started) == 12 * (1 + 10)
        assert (await c.counts())["parked"] == 12 * (DEEP - 1)
        await c.define(SetGate(name="phone:3", capacity=3))
        assert len(await c.take(400)) == 2
        await c.finish(started)
        assert len(await c.take(400)) == 12 - 1 + 1
        assert not await c.audit()


async def test_one_of_many_flows_parks_its_jobs_in_few_rounds(path: Path) -> None:
    async with large_store(path) as c:
        phone = Slots("phone:{phone}", 1)
        await c.declare(phone)
        await c.define(CloseGate(name="phone:busy"))
        await c.add(300, [use_of(phone, phone="busy")], kind="kind-0")
        for n in range(1, FLOWS):
            await c.add(DEEP, [use_of(phone, phone=f"{n}")], kind=f"kind-{n}")
        with c.meter.reading() as read:
            await c.take(1)
        assert (await c.counts())["parked"] >= 250
        # Each round reads four times as many heads of this flow, of the others a few more.
        assert read.statements[HEADS] <= 5 * FLOWS


@pytest.mark.parametrize("n", [10, 200])
async def test_gates_without_parked_jobs_are_found_by_one_statement(path: Path, n: int) -> None:
    async with large_store(path) as c:
        phone = Slots("phone:{phone}", 1)
        await c.declare(phone)
        for number in range(n):
            await c.add(1, [use_of(phone, phone=f"{number}")])
        with c.meter.reading() as read:
            started = await c.take(n)
            await c.finish(started)
        assert len(started) == n
        asked = [one for one in read.statements.elements() if "parked_at = " in one]
        assert len(asked) == 2, asked


@pytest.mark.parametrize("flows", [10, 40])
async def test_flows_at_one_keyed_gate_are_not_read_again_for_each(path: Path, flows: int) -> None:
    async with large_store(path) as c:
        (use,) = await c.declare(Slots("phone:{phone}", 1))
        for n in range(flows):
            await c.add(2, [use], kind=f"kind-{n}")
        started = await c.take(1)
        await c.park_all()
        await c.finish(started)
        # Few flows were fed; one of their jobs starts, and the others are parked again.
        with c.meter.reading() as read:
            assert len(await c.take(2)) == 1
        assert 0 < read.statements[HEADS] <= 2 * flows
        assert (await c.counts())["parked"] == 2 * flows - 2


async def test_few_of_many_flows_at_a_keyed_gate_are_looked_at(path: Path) -> None:
    async with large_store(path) as c:
        (use,) = await c.declare(Slots("phone:{phone}", 1))
        for n in range(FLOWS):
            await c.add(3, [use], kind=f"kind-{n}")
        started = await c.take(1)
        await c.park_all()
        for _ in range(3):
            with c.meter.reading() as read:
                await c.finish(started)
                started = await c.take(9)
            assert len(started) == 1
            # The gate's room, eight flows when they are fed, and when their jobs are parked again.
            assert read.statements[PARKED_HEADS] <= 2 * FEW_FLOWS + 1
            assert read.statements[HEADS] <= 2 * FEW_FLOWS
            c.clock.advance(FEED_REST_MS)
            with c.meter.reading() as read:
                assert await c.take(9) == []
            assert 0 < read.statements[PARKED_HEADS] <= FEW_FLOWS + 1
            with c.meter.reading() as read:
                assert await c.take(9) == []
            assert read.statements[PARKED_HEADS] == 0
        assert not await c.audit()
