"""Fair lanes: priority first, then the tenant with the fewest starts by weight."""

from __future__ import annotations

from collections import Counter

import pytest

from headway.contract.claims import Claimed
from headway.contract.definitions import DeclareLane, LaneSpec
from headway.contract.outcomes import Succeeded
from headway.core.gates.slots import Slots
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LANE, PlayedWorker
from headway.testing.jobs import use_of

LINE = Slots("line", 1)
REPO = Slots("repo:{url}", 1)


def shares(runs: list[Claimed]) -> Counter[str]:
    """How many starts each tenant had."""
    return Counter(run.tenant for run in runs)


async def one_by_one(worker: PlayedWorker, count: int) -> list[Claimed]:
    """So many claims of one job each."""
    return [await worker.take_one() for _ in range(count)]


async def fair_lane(rig: Rig, **weights: int) -> PlayedWorker:
    """A worker of a lane that is fair by these weights."""
    spec = LaneSpec(name=LANE, fair="tenant", weights=tuple(weights.items()))
    await rig.define(DeclareLane(spec=spec))
    return rig.new_worker()


async def turns(worker: PlayedWorker, n: int, count: int, claims: int = 1) -> list[str]:
    """The tenants that start, one after the other, at a gate of one permit.

    Args:
        worker: who claims and ends all that it got, again and again.
        n: how many jobs each claim asks for.
        count: how many starts at the gate.
        claims: how many claims there are between two ends.
    """
    order: list[str] = []
    for _ in range(count):
        runs = [run for _ in range(claims) for run in await worker.take(n)]
        (held,) = [run for run in runs if run.gated]
        order.append(held.tenant)
        await worker.settle(*(Succeeded(run.id, run.run) for run in runs))
    return order


class FairnessGroup(ConformanceGroup):
    """Starts are shared between the tenants that can run."""

    async def test_tenants_share_the_starts_whoever_came_first(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        for tenant in ("acme", "beta", "core"):
            await rig.add_many(60, tenant=tenant)
        assert shares(await one_by_one(worker, 30)) == dict.fromkeys(("acme", "beta", "core"), 10)
        assert shares(await worker.take(30)) == dict.fromkeys(("acme", "beta", "core"), 10)

    async def test_tenants_share_by_weight(self, rig: Rig) -> None:
        worker = await fair_lane(rig, acme=3, beta=2)
        for tenant in ("acme", "beta", "core"):
            await rig.add_many(100, tenant=tenant)
        got = shares(await one_by_one(worker, 60))
        assert abs(got["acme"] - 30) <= 1
        assert abs(got["beta"] - 20) <= 1
        assert abs(got["core"] - 10) <= 1

    async def test_priority_goes_before_fairness(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        urgent = await rig.add_many(10, tenant="acme", priority=1)
        await rig.add_many(10, tenant="beta", priority=2)
        assert await worker.take_ids(10) == [job.id for job in urgent]

    async def test_tenant_that_comes_late_starts_from_the_lanes_level(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        await rig.add_many(200, tenant="acme")
        await one_by_one(worker, 100)
        await rig.add_many(200, tenant="beta")
        got = shares(await one_by_one(worker, 40))
        assert abs(got["acme"] - got["beta"]) <= 2

    async def test_tenant_that_was_paused_makes_nothing_up(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        for tenant in ("acme", "beta"):
            await rig.add_many(200, tenant=tenant)
        await one_by_one(worker, 20)
        await rig.shut("tenant:beta")
        assert shares(await one_by_one(worker, 60)) == {"acme": 60}
        await rig.unshut("tenant:beta")
        got = shares(await one_by_one(worker, 40))
        assert abs(got["acme"] - got["beta"]) <= 2

    async def test_order_within_a_tenant_is_due_time_and_arrival(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        made = {tenant: await rig.add_many(10, tenant=tenant) for tenant in ("acme", "beta")}
        runs = await one_by_one(worker, 20)
        for tenant, jobs in made.items():
            got = [run.id for run in runs if run.tenant == tenant]
            assert got == [job.id for job in jobs]

    async def test_kinds_of_one_tenant_count_together(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        for kind in ("dial", "text", "mail"):
            await rig.add_many(20, tenant="acme", kind=kind)
        await rig.add_many(40, tenant="beta")
        assert shares(await one_by_one(worker, 40)) == {"acme": 20, "beta": 20}

    async def test_lane_that_is_not_fair_goes_by_due_time_alone(self, rig: Rig) -> None:
        first = await rig.add_many(10, tenant="acme")
        await rig.add_many(10, tenant="beta")
        assert await rig.new_worker().take_ids(10) == [job.id for job in first]

    @pytest.mark.parametrize("n", [1, 2, 5])
    async def test_tenants_take_turns_at_a_full_gate_whatever_the_size_of_a_claim(
        self, rig: Rig, n: int
    ) -> None:
        await rig.declare(LINE)
        worker = await fair_lane(rig)
        await rig.add_many(30, tenant="big", gates=(use_of(LINE),))
        await rig.add_many(8, tenant="small", gates=(use_of(LINE),))
        order = await turns(worker, n, 38)
        assert Counter(order) == {"big": 30, "small": 8}
        assert order[:16] == ["big", "small"] * 8

    @pytest.mark.parametrize("n", [1, 4])
    async def test_tenants_share_a_full_gate_by_weight(self, rig: Rig, n: int) -> None:
        await rig.declare(LINE)
        worker = await fair_lane(rig, acme=3, beta=2)
        for tenant in ("core", "beta", "acme"):
            await rig.add_many(40, tenant=tenant, gates=(use_of(LINE),))
        for _ in range(3):
            assert Counter(await turns(worker, n, 12)) == {"acme": 6, "beta": 4, "core": 2}

    @pytest.mark.parametrize("n", [1, 5])
    async def test_starts_of_others_elsewhere_change_no_turn_at_a_full_gate(
        self, rig: Rig, n: int
    ) -> None:
        """Three tenants wait at the line, while jobs of the first pass no gate."""
        await rig.declare(LINE)
        worker = await fair_lane(rig, beta=2)
        for tenant in ("acme", "beta", "core"):
            await rig.add_many(60, tenant=tenant, gates=(use_of(LINE),))
        await rig.add_many(400, tenant="acme", kind="free")
        # Acme has had more than both by what passes no gate, from its second claim on.
        got = Counter(await turns(worker, n, 30, claims=3))
        assert got["acme"] <= 2
        assert abs(got["beta"] - 2 * got["core"]) <= 3

    @pytest.mark.parametrize("n", [1, 5])
    async def test_tenants_take_turns_at_a_keyed_gate_while_another_starts_elsewhere(
        self, rig: Rig, n: int
    ) -> None:
        await rig.declare(REPO)
        worker = await fair_lane(rig)
        for tenant in ("beta", "core"):
            await rig.add_many(10, tenant=tenant, gates=(use_of(REPO, url="a"),))
        await rig.add_many(300, tenant="acme", kind="free")
        assert await turns(worker, n, 10, claims=3) == ["beta", "core"] * 5

    async def test_tenant_that_full_gates_held_back_makes_nothing_up(self, rig: Rig) -> None:
        await rig.declare(LINE)
        worker = await fair_lane(rig)
        await rig.add_many(60, tenant="beta", gates=(use_of(LINE),))
        (held,) = await worker.take(2)
        await rig.add_many(200, tenant="acme")
        await one_by_one(worker, 60)
        await rig.cap("line", 1_000)
        await worker.settle(Succeeded(held.id, held.run))
        got = shares(await one_by_one(worker, 40))
        assert abs(got["acme"] - got["beta"]) <= 2

    async def test_tenant_that_runs_out_within_a_claim_has_no_start_counted_twice(
        self, rig: Rig
    ) -> None:
        """Beside a third that is held, and has had less than both."""
        await rig.declare(LINE)
        worker = await fair_lane(rig)
        await rig.add(tenant="core", gates=(use_of(LINE),), priority=9)
        for tenant in ("acme", "beta"):
            await rig.add_many(10, tenant=tenant, priority=1)
        assert "core" not in shares(await one_by_one(worker, 20))
        await rig.cap("line", 0)
        await rig.add_many(5, tenant="acme")
        await rig.add_many(10, tenant="beta")
        assert shares(await worker.take(15)) == {"acme": 5, "beta": 10}
        for tenant in ("acme", "beta"):
            await rig.add_many(10, tenant=tenant)
        assert shares(await one_by_one(worker, 10)) == {"acme": 5, "beta": 5}
