"""Jobs behind full gates cost nothing until there is room, and then a bounded amount."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from headway import Rate, Slots
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.views import StatsQuery
from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob
from headway.stores import open_store
from headway.testing.jobs import use_of
from tests.scale.large_store import LargeStore, large_store
from tests.servers.stores import NewUrl

FEW_AND_MANY = [
    pytest.param(2_000),
    pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]
ONE_LINE = [
    pytest.param(Slots("line", 1), id="shared"),
    pytest.param(Slots("line:{phone}", 1), id="keyed"),
]
OTHER = "mail"


@pytest.mark.parametrize("waiting", FEW_AND_MANY)
async def test_two_alternating_full_gates_write_a_bounded_number_of_rows_per_start(
    path: Path, waiting: int
) -> None:
    async with large_store(path) as c:
        left, right = await c.declare(Slots("left", 1), Slots("right", 1))
        await c.add(waiting, [left, right])
        await c.add(12, [left], lane="left only")
        await c.add(12, [right], lane="right only")
        await one_start_between_two_blocks(c)  # names are interned once
        for _ in range(10):
            with c.meter.reading() as read:
                await one_start_between_two_blocks(c)
            # Three starts and settlements, and four claims that find a gate full.
            assert read.rows <= 90
            assert read.scanned == 0
        assert (await c.counts())["waiting"] == waiting - 11 + 2


async def one_start_between_two_blocks(c: LargeStore) -> None:
    """Fill the left gate, then the right one, then neither: one of the crowd starts."""
    left = await c.take(1, "left only")
    assert not await c.take(1)
    right = await c.take(1, "right only")
    assert not await c.take(1)
    await c.finish(left)
    assert not await c.take(1)
    await c.finish(right)
    started = await c.take(2)
    assert len(started) == 1
    await c.finish(started)


async def test_claim_moves_a_bounded_number_of_jobs_to_their_other_gate(path: Path) -> None:
    async with large_store(path) as c:
        left, right = await c.declare(Slots("left:{phone}", 1), Slots("right:{phone}", 1))
        await c.add(1, [left])
        await c.add(1, [right])
        holder, _ = await c.take(2)
        await c.add(5_000, [left, right])
        await c.park_all()
        await c.finish([holder])
        with c.meter.reading() as read:
            assert await c.take(1) == []
        assert 1_000 <= read.rows <= 2_100


@pytest.mark.parametrize("spec", ONE_LINE)
@pytest.mark.parametrize("waiting", FEW_AND_MANY)
async def test_one_released_permit_starts_exactly_one(
    path: Path, waiting: int, spec: GateSpec
) -> None:
    async with large_store(path) as c:
        (line,) = await c.declare(spec)
        await c.add(waiting, [line])
        started = await c.take(1)
        await c.park_all()
        counts = await c.counts()
        assert counts["running"] == 1
        assert counts["parked" if not spec.shared else "waiting"] == waiting - 1
        for _ in range(5):
            with c.meter.reading() as read:
                await c.finish(started)
                started = await c.take(10)
            assert len(started) == 1
            assert read.rows <= 40
        counts = await c.counts()
        assert counts["running"] == 1
        assert counts["succeeded"] == 5
        assert await c.audit() == []


@pytest.mark.parametrize("spec", ONE_LINE)
@pytest.mark.parametrize("waiting", FEW_AND_MANY)
async def test_jobs_behind_a_full_gate_do_not_make_other_claims_slower(
    path: Path, waiting: int, spec: GateSpec
) -> None:
    async with large_store(path) as c:
        (line,) = await c.declare(spec)
        await c.add(10, [line])
        await c.take(1)
        await c.park_all()
        alone = await cost_of_others(c)
        await c.add(waiting, [line])
        await c.park_all()
        beside = await cost_of_others(c)
        assert beside[0] == alone[0]
        assert beside[1] <= 1.2 * alone[1]


async def cost_of_others(c: LargeStore) -> tuple[int, int]:
    """Return rows and steps of claims of jobs in the same lane that no gate blocks."""
    rows, steps = 0, 0
    for _ in range(5):
        await c.add(20, kind="ring")
        with c.meter.reading() as read:
            started = await c.take(20)
        assert len(started) == 20
        assert read.scanned == 0
        rows, steps = rows + read.rows, steps + read.steps
        await c.finish(started)
    return rows, steps


async def test_rate_that_opens_feeds_many_flows_about_as_much_as_it_has_room_for(
    path: Path,
) -> None:
    flows, jobs, limit = 40, 20, 100
    async with large_store(path) as c:
        (use,) = await c.declare(Rate("pace:{phone}", limit, per="1m"))
        for one in range(flows):
            await c.add(jobs, [use], kind=f"k{one}")
        await c.finish(await c.take(limit))
        await c.park_all()
        c.clock.advance(60_000)
        started = await c.take(limit)
        # Two of each flow when it opens, and two more for each that starts.
        assert (await c.store.read(StatsQuery())).totals["fed"] <= 3 * limit
        while more := await c.take(limit):
            started += more
        assert len(started) == limit


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_claim_of_several_lanes_parks_as_many_jobs_as_one_of_one_lane(
    kind: str, new_url: NewUrl
) -> None:
    lanes, most = ("a", "b", "c", "d"), 1_000
    phone = Slots("phone:{phone}", 0)
    gates = (use_of(phone, phone="1"),)
    store = open_store(new_url(kind))
    await store.define(DefineRequest(items=(DeclareGate(spec=phone),), author="ann"))
    for lane in lanes:
        await store.enqueue(
            [NewJob(id=str(uuid4()), kind="dial", lane=lane, gates=gates) for _ in range(most // 2)]
        )
    shares = tuple((lane, 1) for lane in lanes)
    reply = await store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=shares, n=9, free=9))
    assert reply.again
    counts = (await store.read(StatsQuery())).counts
    assert most // 2 <= counts["parked"] <= most + 100
    await store.close()
