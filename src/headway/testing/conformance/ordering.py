"""Order: priority, due time, arrival; in fair lanes, the tenant with the fewest starts."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from headway.contract.claims import Claimed
from headway.contract.definitions import DeclareLane, LaneSpec
from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import Failed, Succeeded
from headway.core.gates.slots import Slots
from headway.core.job import DEFAULT_POLICY, MAX_BATCH, MAX_PRIORITY
from headway.core.state import State
from headway.testing.conformance.rig import SHORT, ConformanceGroup, Rig
from headway.testing.conformance.worker import LANE, PlayedWorker
from headway.testing.jobs import keyed


class OrderGroup(ConformanceGroup):
    """Start order: priority, due time, arrival."""

    async def test_order_is_priority_then_due_time_then_arrival(self, rig: Rig) -> None:
        now = rig.clock()
        jobs = [
            await rig.add(priority=priority, due_at=now - back)
            for _, back, priority in product(range(2), (5, 9, 7), (30, 10, 20))
        ]
        places = {job.id: place for place, job in enumerate(jobs)}
        expected = sorted(jobs, key=lambda job: (job.priority, job.due_at, places[job.id]))
        assert await rig.new_worker().take_ids(100) == [job.id for job in expected]

    async def test_smaller_priority_goes_first_over_the_whole_range(self, rig: Rig) -> None:
        priorities = [2**31, MAX_PRIORITY, 0, 2**31 - 1, 1, 256, 255, 512]
        jobs = [await rig.add(priority=priority) for priority in priorities]
        expected = sorted(jobs, key=lambda job: job.priority)
        assert await rig.new_worker().take_ids(100) == [job.id for job in expected]

    async def test_best_head_goes_first_between_the_flows_of_a_lane(self, rig: Rig) -> None:
        now = rig.clock()
        jobs = [
            await rig.add(kind=kind, tenant=tenant, priority=priority, due_at=now - back)
            for back, (kind, tenant, priority) in enumerate(
                product(("dial", "text"), ("acme", "beta"), (4, 2))
            )
        ]
        expected = sorted(jobs, key=lambda job: (job.priority, job.due_at))
        got = [job for _ in range(4) for job in await rig.worker.take_ids(2)]
        assert got == [job.id for job in expected]

    async def test_newly_due_jobs_are_ordered_among_waiting_ones(self, rig: Rig) -> None:
        now = rig.clock()
        later = await rig.add(due_at=now + 3_000)
        sooner = await rig.add(due_at=now + 1_000)
        urgent = await rig.add(due_at=now + 2_000, priority=1)
        waiting = await rig.add(due_at=now)
        rig.clock.advance(5_000)
        assert await rig.worker.take_ids(9) == [
            urgent.id, waiting.id, sooner.id, later.id,
        ]  # fmt: skip

    async def test_retried_job_takes_the_place_of_its_new_due_time(self, rig: Rig) -> None:
        first, second = await rig.add(), await rig.add()
        await rig.worker.take_and_report(Failed, after_ms=10)
        rig.clock.advance(10)
        assert await rig.worker.take_ids(9) == [second.id, first.id]

    async def test_edited_priority_changes_the_place_of_a_waiting_job(self, rig: Rig) -> None:
        first, second = await rig.add(), await rig.add()
        assert await rig.act(Verb.EDIT, second.id, edit=Edit(priority=1)) == [Acted.DONE]
        assert await rig.worker.take_ids(9) == [second.id, first.id]


class SchedulingGroup(ConformanceGroup):
    """Jobs that are due later, and jobs that expire."""

    async def test_job_is_claimed_at_its_due_time_and_not_before(self, rig: Rig) -> None:
        job = await rig.add(due_at=rig.clock() + 5_000)
        rig.clock.advance(4_999)
        early = await rig.worker.ask(5)
        assert (early.jobs, early.next_at, early.again) == ([], job.due_at, False)
        assert await rig.state(job.id) is State.SCHEDULED
        rig.clock.advance(1)
        assert await rig.worker.take_ids(5) == [job.id]

    async def test_sweep_promotes_only_due_jobs(self, rig: Rig) -> None:
        jobs = [await rig.add(due_at=rig.clock() + ms) for ms in (1_000, 2_000)]
        await rig.pass_time(1_000)
        assert await rig.states(*jobs) == [State.WAITING, State.SCHEDULED]

    async def test_next_at_is_the_next_due_time_of_the_requested_lanes(self, rig: Rig) -> None:
        now = rig.clock()
        await rig.add(due_at=now + 9_000)
        await rig.add(due_at=now + 4_000)
        await rig.add(due_at=now + 1_000, lane="texts")
        assert (await rig.worker.ask(5)).next_at == now + 4_000

    async def test_due_jobs_of_several_lanes_start_at_their_moment(self, rig: Rig) -> None:
        now = rig.clock()
        later = await rig.add(due_at=now + 2_000, lane="calls")
        first = await rig.add(due_at=now + 1_000, lane="texts")
        lanes = ("empty", "texts", "calls")
        for ms, job, next_at in ((1_000, first, now + 2_000), (1_000, later, None)):
            rig.clock.advance(ms - 1)
            assert await rig.worker.take(5, *lanes) == []
            rig.clock.advance(1)
            reply = await rig.worker.ask(5, *lanes)
            assert [one.id for one in reply.jobs] == [job.id]
            assert reply.next_at == next_at

    async def test_promotion_is_bounded_and_says_that_more_is_due(self, rig: Rig) -> None:
        due_at = rig.clock() + 1_000
        for _ in range(2):
            await rig.add_many(800, due_at=due_at)
        await rig.add(due_at=due_at, lane="texts")
        rig.clock.advance(1_000)
        first = await rig.worker.ask(1)
        counts = (await rig.dump()).stats.counts
        assert (len(first.jobs), first.again) == (1, True)
        assert counts[State.SCHEDULED] >= 600
        got = {job.id for job in first.jobs}
        for _ in range(4):
            got.update(await rig.worker.take_ids(1000))
        assert len(got) == 1600

    async def test_burst_in_one_lane_delays_no_other(self, rig: Rig) -> None:
        due_at = rig.clock() + 1_000
        for _ in range(2):
            await rig.add_many(1000, due_at=due_at)
        urgent = await rig.add(due_at=due_at, lane="urgent")
        rig.clock.advance(1_000)
        assert await rig.worker.take_ids(5, "urgent") == [urgent.id]

    async def test_expired_job_that_never_started_is_dead_as_expired(self, rig: Rig) -> None:
        now = rig.clock()
        waiting = await rig.add(expires_at=now + 5_000)
        scheduled = await rig.add(due_at=now + 9_000, expires_at=now + 5_000)
        await rig.pass_time(5_001)
        for job in (waiting, scheduled):
            view = await rig.view(job.id)
            assert (view.state, view.reason) == (State.DEAD, "expired")
        assert await rig.worker.take(5) == []

    async def test_expired_job_is_not_claimed_however_many_have_expired(self, rig: Rig) -> None:
        expires_at = rig.clock() + 5_000
        # As many as one claim ends.
        await rig.add_many(MAX_BATCH, expires_at=expires_at + 1)
        last = await rig.add(expires_at=expires_at + 2, lane="other")
        good = await rig.add(lane="other")
        rig.clock.advance(6_000)
        started = await rig.worker.take_ids(5, "other") + await rig.worker.take_ids(5, "other")
        assert started == [good.id]
        assert (await rig.view(last.id)).reason == "expired"

    async def test_claim_passes_over_any_number_of_expired_jobs_of_other_flows(
        self, rig: Rig
    ) -> None:
        expires_at = rig.clock() + 5_000
        first, good = await rig.add(), await rig.add(kind="other")
        # More than two claims end; those that expire at this instant come first, and end last.
        for n in range(3):
            await rig.add_many(MAX_BATCH, expires_at=expires_at - n)
        last = await rig.add()
        rig.clock.advance(5_000)
        assert await rig.worker.take_ids(5) == [first.id, good.id]
        later = await rig.add(lane="other", expires_at=expires_at + 5_000)
        assert await rig.worker.take_ids(5, "other") == [later.id]
        assert await rig.worker.take_ids(5) == [last.id]

    async def test_claim_ends_what_expires_at_this_instant_though_it_starts_something_else(
        self, rig: Rig
    ) -> None:
        first = await rig.add(**SHORT)
        last = await rig.add(key=None, policy=DEFAULT_POLICY, expires_at=rig.clock() + 1_000)
        rig.clock.advance(1_000)
        assert await rig.worker.take_ids(1) == [first.id]
        assert await rig.state(last.id) is State.DEAD

    async def test_claim_names_the_jobs_it_finds_expired(self, rig: Rig) -> None:
        expired = [await rig.add(expires_at=rig.clock() + 5_000) for _ in range(2)]
        good = await rig.add()
        rig.clock.advance(5_001)
        reply = await rig.new_worker().ask(5)
        assert [one.id for one in reply.jobs] == [good.id]
        assert reply.dead == tuple(sorted(one.id for one in expired))
        assert (await rig.new_worker().ask(5)).dead == ()

    async def test_claim_that_leaves_expired_jobs_asks_for_another_at_once(self, rig: Rig) -> None:
        for n in (1_000, 1):
            await rig.add_many(n, expires_at=rig.clock() + 5_000)
        good = await rig.add()
        rig.clock.advance(5_001)
        worker = rig.new_worker()
        reply = await worker.ask(1)
        assert reply.again
        # If the reply was lost and the claim is repeated, this is the second one already.
        jobs = reply.jobs or (await worker.ask(1)).jobs
        assert [one.id for one in jobs] == [good.id]

    async def test_job_that_started_once_never_expires(self, rig: Rig) -> None:
        job = await rig.add(expires_at=rig.clock() + 5_000)
        await rig.worker.take_and_report(Failed, after_ms=9_000)
        await rig.pass_time(9_000)
        assert await rig.state(job.id) is State.WAITING
        await rig.worker.take_and_report(Succeeded)
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_expired_job_retried_by_an_operator_does_not_expire_again(self, rig: Rig) -> None:
        job = await rig.add(expires_at=rig.clock() + 5_000)
        await rig.pass_time(5_001)
        assert await rig.state(job.id) is State.DEAD
        assert await rig.act(Verb.RETRY, job.id) == [Acted.DONE]
        await rig.sweep()
        assert await rig.worker.take_ids() == [job.id]

    async def test_run_now_makes_only_that_scheduled_job_due(self, rig: Rig) -> None:
        now = rig.clock()
        first, second = await rig.add(due_at=now + 9_000), await rig.add(due_at=now + 9_000)
        assert await rig.act(Verb.RUN_NOW, second.id) == [Acted.DONE]
        assert await rig.worker.take_ids(5) == [second.id]
        assert await rig.state(first.id) is State.SCHEDULED

    async def test_edited_due_time_moves_a_job_both_ways(self, rig: Rig) -> None:
        now = rig.clock()
        later, sooner = await rig.add(), await rig.add(due_at=now + 9_000)
        await rig.act(Verb.EDIT, later.id, edit=Edit(due_at=now + 2_000))
        await rig.act(Verb.EDIT, sooner.id, edit=Edit(due_at=now + 1_000))
        assert await rig.worker.take(5, LANE) == []
        rig.clock.advance(1_000)
        assert await rig.worker.take_ids(5) == [sooner.id]
        rig.clock.advance(1_000)
        assert await rig.worker.take_ids(5) == [later.id]


LINE = Slots("line", 1)
REPO = Slots("repo:{url}", 1)


def shares(runs: list[Claimed]) -> Counter[str]:
    """Return how many starts each tenant had."""
    return Counter(run.tenant for run in runs)


async def one_by_one(worker: PlayedWorker, count: int) -> list[Claimed]:
    """Claim one job several times."""
    return [await worker.take_one() for _ in range(count)]


async def fair_lane(rig: Rig, **weights: int) -> PlayedWorker:
    """Make the lane fair with these weights, and return a worker for it."""
    spec = LaneSpec(name=LANE, fair="tenant", weights=tuple(weights.items()))
    await rig.define(DeclareLane(spec=spec))
    return rig.new_worker()


async def turns(worker: PlayedWorker, n: int, count: int, claims: int = 1) -> list[str]:
    """Return the tenants that start at a gate with one permit, in order.

    Args:
        worker: repeatedly claims, then settles everything it got.
        claims: number of claims before each settlement.
    """
    order: list[str] = []
    for _ in range(count):
        runs = [run for _ in range(claims) for run in await worker.take(n)]
        (held,) = [run for run in runs if run.gated]
        order.append(held.tenant)
        await worker.finish(*runs)
    return order


class FairnessGroup(ConformanceGroup):
    """Starts are shared between the tenants that can run."""

    async def test_tenants_share_starts_whoever_came_first(self, rig: Rig) -> None:
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

    async def test_tenant_whose_weight_is_above_the_limit_does_not_starve_the_others(
        self, rig: Rig
    ) -> None:
        worker = await fair_lane(rig, acme=4_000_000, beta=2_000_000)
        for tenant in ("acme", "beta"):
            await rig.add_many(20, tenant=tenant)
        assert shares(await one_by_one(worker, 20))["beta"] >= 6

    async def test_priority_goes_before_fairness(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        urgent = await rig.add_many(10, tenant="acme", priority=1)
        await rig.add_many(10, tenant="beta", priority=2)
        assert await worker.take_ids(10) == [job.id for job in urgent]

    async def test_late_tenant_starts_from_the_lanes_level(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        await rig.add_many(200, tenant="acme")
        await one_by_one(worker, 100)
        await rig.add_many(200, tenant="beta")
        got = shares(await one_by_one(worker, 40))
        assert abs(got["acme"] - got["beta"]) <= 2

    async def test_paused_tenant_does_not_catch_up(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        for tenant in ("acme", "beta"):
            await rig.add_many(200, tenant=tenant)
        await one_by_one(worker, 20)
        await rig.close_gate("tenant:beta")
        assert shares(await one_by_one(worker, 60)) == {"acme": 60}
        await rig.open_gate("tenant:beta")
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

    async def test_unfair_lane_goes_by_due_time_alone(self, rig: Rig) -> None:
        first = await rig.add_many(10, tenant="acme")
        await rig.add_many(10, tenant="beta")
        assert await rig.new_worker().take_ids(10) == [job.id for job in first]

    @pytest.mark.parametrize("n", [1, 2, 5])
    async def test_tenants_take_turns_at_a_full_gate_whatever_the_claim_size(
        self, rig: Rig, n: int
    ) -> None:
        worker = await fair_lane(rig)
        await rig.add_many(30, tenant="big", gates=(LINE,))
        await rig.add_many(8, tenant="small", gates=(LINE,))
        order = await turns(worker, n, 38)
        assert Counter(order) == {"big": 30, "small": 8}
        assert order[:16] == ["big", "small"] * 8

    @pytest.mark.parametrize("n", [1, 4])
    async def test_tenants_share_a_full_gate_by_weight(self, rig: Rig, n: int) -> None:
        worker = await fair_lane(rig, acme=3, beta=2)
        for tenant in ("core", "beta", "acme"):
            await rig.add_many(40, tenant=tenant, gates=(LINE,))
        for _ in range(3):
            assert Counter(await turns(worker, n, 12)) == {"acme": 6, "beta": 4, "core": 2}

    @pytest.mark.parametrize("n", [1, 5])
    async def test_starts_elsewhere_change_no_turn_at_a_full_gate(self, rig: Rig, n: int) -> None:
        """Three tenants wait at the gate `line`, while the first also has jobs without gates."""
        worker = await fair_lane(rig, beta=2)
        for tenant in ("acme", "beta", "core"):
            await rig.add_many(60, tenant=tenant, gates=(LINE,))
        await rig.add_many(400, tenant="acme", kind="free")
        # From the second claim on, acme has had more starts than the other two, in jobs without
        # gates.
        got = Counter(await turns(worker, n, 30, claims=3))
        assert got["acme"] <= 2
        assert abs(got["beta"] - 2 * got["core"]) <= 3

    @pytest.mark.parametrize("n", [1, 5])
    async def test_tenants_take_turns_at_a_keyed_gate_while_another_starts_elsewhere(
        self, rig: Rig, n: int
    ) -> None:
        worker = await fair_lane(rig)
        for tenant in ("beta", "core"):
            await rig.add_many(10, tenant=tenant, gates=(keyed(REPO, url="a"),))
        await rig.add_many(300, tenant="acme", kind="free")
        assert await turns(worker, n, 10, claims=3) == ["beta", "core"] * 5

    async def test_many_tenants_share_a_keyed_gate_by_weight(self, rig: Rig) -> None:
        worker = await fair_lane(rig, acme=3)
        await rig.add_many(9, tenant="acme", gates=(keyed(REPO, url="a"),))
        for n in range(20):
            await rig.add_many(3, tenant=f"t{n}", gates=(keyed(REPO, url="a"),))
        fed = 0
        for _ in range(2):
            got = Counter(await turns(worker, 3, 23))
            assert got == {"acme": 3} | {f"t{n}": 1 for n in range(20)}
            # The jobs of few tenants are examined for each start, not those of all.
            assert await rig.total("fed") - fed <= 9 * 23
            fed = await rig.total("fed")

    async def test_tenant_held_back_by_full_gates_does_not_catch_up(self, rig: Rig) -> None:
        worker = await fair_lane(rig)
        await rig.add_many(60, tenant="beta", gates=(LINE,))
        (held,) = await worker.take(2)
        await rig.add_many(200, tenant="acme")
        await one_by_one(worker, 60)
        await rig.cap("line", 1_000)
        await worker.finish(held)
        got = shares(await one_by_one(worker, 40))
        assert abs(got["acme"] - got["beta"]) <= 2

    async def test_tenant_without_jobs_left_in_a_claim_has_no_start_counted_twice(
        self, rig: Rig
    ) -> None:
        """A third tenant is held back, and has had fewer starts than the other two."""
        worker = await fair_lane(rig)
        await rig.add(tenant="core", gates=(LINE,), priority=9)
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
