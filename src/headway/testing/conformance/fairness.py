"""Fair lanes: priority first, then the tenant with the fewest starts by weight."""

from __future__ import annotations

from collections import Counter

from headway.contract.claims import Claimed
from headway.contract.definitions import DeclareLane, LaneSpec
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LANE, PlayedWorker


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
    return rig.worker()


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
        assert await rig.worker().take_ids(10) == [job.id for job in first]
