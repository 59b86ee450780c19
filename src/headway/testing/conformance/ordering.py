"""Order within a flow and between the flows of a lane; scheduling and promotion."""

from __future__ import annotations

from itertools import product

from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import Failed, Succeeded
from headway.core.job import MAX_PRIORITY
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LANE


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

    async def test_jobs_that_fell_due_are_ordered_among_those_that_waited(self, rig: Rig) -> None:
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
        await rig.worker.take_and_say(Failed, after_ms=10)
        rig.clock.advance(10)
        assert await rig.worker.take_ids(9) == [second.id, first.id]

    async def test_edited_priority_changes_the_place_of_a_waiting_job(self, rig: Rig) -> None:
        first, second = await rig.add(), await rig.add()
        assert await rig.act(Verb.EDIT, second.id, edit=Edit(priority=1)) == [Acted.DONE]
        assert await rig.worker.take_ids(9) == [second.id, first.id]


class SchedulingGroup(ConformanceGroup):
    """Jobs that are due later, and jobs that are due too late."""

    async def test_job_is_not_claimed_before_its_moment_and_is_at_it(self, rig: Rig) -> None:
        job = await rig.add(due_at=rig.clock() + 5_000)
        rig.clock.advance(4_999)
        early = await rig.worker.ask(5)
        assert (early.jobs, early.next_at, early.again) == ([], job.due_at, False)
        assert await rig.state(job.id) is State.SCHEDULED
        rig.clock.advance(1)
        assert await rig.worker.take_ids(5) == [job.id]

    async def test_sweep_promotes_what_is_due_and_nothing_else(self, rig: Rig) -> None:
        jobs = [await rig.add(due_at=rig.clock() + ms) for ms in (1_000, 2_000)]
        await rig.pass_time(1_000)
        assert await rig.states(*jobs) == [State.WAITING, State.SCHEDULED]

    async def test_next_at_is_the_next_due_moment_of_the_lanes_asked_for(self, rig: Rig) -> None:
        now = rig.clock()
        await rig.add(due_at=now + 9_000)
        await rig.add(due_at=now + 4_000)
        await rig.add(due_at=now + 1_000, lane="texts")
        assert (await rig.worker.ask(5)).next_at == now + 4_000

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

    async def test_job_past_its_expiry_that_never_started_is_dead_as_expired(
        self, rig: Rig
    ) -> None:
        now = rig.clock()
        waiting = await rig.add(expires_at=now + 5_000)
        scheduled = await rig.add(due_at=now + 9_000, expires_at=now + 5_000)
        await rig.pass_time(5_001)
        for job in (waiting, scheduled):
            view = await rig.view(job.id)
            assert (view.state, view.reason) == (State.DEAD, "expired")
        assert await rig.worker.take(5) == []

    async def test_expired_job_is_not_claimed_before_any_sweep(self, rig: Rig) -> None:
        await rig.add(expires_at=rig.clock() + 5_000)
        good = await rig.add()
        rig.clock.advance(5_001)
        assert await rig.worker.take_ids(5) == [good.id]

    async def test_claim_names_the_jobs_that_it_finds_expired(self, rig: Rig) -> None:
        expired = [await rig.add(expires_at=rig.clock() + 5_000) for _ in range(2)]
        good = await rig.add()
        rig.clock.advance(5_001)
        reply = await rig.new_worker().ask(5)
        assert [one.id for one in reply.jobs] == [good.id]
        assert reply.dead == tuple(sorted(one.id for one in expired))
        assert (await rig.new_worker().ask(5)).dead == ()

    async def test_job_that_started_once_never_expires(self, rig: Rig) -> None:
        job = await rig.add(expires_at=rig.clock() + 5_000)
        await rig.worker.take_and_say(Failed, after_ms=9_000)
        await rig.pass_time(9_000)
        assert await rig.state(job.id) is State.WAITING
        await rig.worker.take_and_say(Succeeded)
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_expired_job_that_an_operator_retries_does_not_expire_again(
        self, rig: Rig
    ) -> None:
        job = await rig.add(expires_at=rig.clock() + 5_000)
        await rig.pass_time(5_001)
        assert await rig.state(job.id) is State.DEAD
        assert await rig.act(Verb.RETRY, job.id) == [Acted.DONE]
        await rig.sweep()
        assert await rig.worker.take_ids() == [job.id]

    async def test_run_now_makes_a_scheduled_job_due_and_moves_no_other(self, rig: Rig) -> None:
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
