"""Parking: jobs at a full keyed gate; one that needs more holds back the jobs behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.contract.claims import Claimed
from headway.contract.operate import Edit, Verb
from headway.contract.outcomes import Failed, GaveBack, Released
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.job import MAX_BATCH, NewJob
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.testing.conformance.rig import ConformanceGroup, Rig, for_candidate, policy_with
from headway.testing.conformance.worker import LEASE_MS
from headway.testing.jobs import POLICY, keyed

REPO = Slots("repo:{url}", 1)
LINES = Slots("lines:{url}", 2)
PHONE = Slots("phone:{phone}", 1)
HOURLY = Rate("hourly:{phone}", 1, "1h")
LINE = Slots("line", 1)
A, B = keyed(REPO, url="a"), keyed(REPO, url="b")


async def park_behind_one(rig: Rig, n: int) -> tuple[Claimed, list[NewJob]]:
    """Start the first of n jobs of `repo:a`, and park the rest; return the run and all jobs."""
    jobs = await rig.add_many(n, gates=(A,))
    run = await rig.worker.take_one()
    await rig.worker.take(9)
    return run, jobs


async def claim_all(rig: Rig) -> list[str]:
    """Claim until there is nothing to claim now; return the ids of the started jobs."""
    ids: list[str] = []
    for _ in range(100):
        reply = await rig.worker.ask(MAX_BATCH)
        ids += [job.id for job in reply.jobs]
        due = reply.next_at is not None and reply.next_at <= rig.clock()
        if not (reply.jobs or reply.again or due):
            return ids
    pytest.fail("there is still something to claim after 100 claims")


class ParkingGroup(ConformanceGroup):
    """Jobs parked at a keyed gate start in order, and none is left behind."""

    async def test_job_at_a_closed_keyed_gate_is_parked_and_lets_others_pass(
        self, rig: Rig
    ) -> None:
        first, second = await rig.add_many(2, gates=(A,))
        other = await rig.add(gates=(B,))
        plain = await rig.add()
        assert await rig.worker.take_ids(9) == [first.id, other.id, plain.id]
        view = await rig.view(second.id)
        assert (view.state, view.parked_at, view.shown) == (State.PARKED, "repo:a", "blocked")
        assert (await rig.gate("repo:a")).parked == 1

    async def test_permit_released_at_a_keyed_gate_starts_exactly_one(self, rig: Rig) -> None:
        jobs = await rig.add_many(10, gates=(A,))
        run = await rig.worker.take_one()
        for job in jobs[1:]:
            assert await rig.worker.take(9) == []
            await rig.worker.finish(run)
            (run,) = await rig.worker.take(9)
            assert run.id == job.id

    async def test_jobs_at_a_busy_gate_are_passed_over_in_many_flows(self, rig: Rig) -> None:
        await rig.start(gates=(A,))
        blocked: list[NewJob] = []
        free: list[NewJob] = []
        large = b'{"text":"%s"}' % (b"x" * 5_000)
        for flow in range(40):
            tenant, priority = f"t{flow}", 90 - flow
            own = keyed(REPO, url=flow)
            blocked.append(await rig.add(gates=(A,), tenant=tenant, priority=priority))
            free.append(await rig.add(gates=(own,), tenant=tenant, priority=priority, args=large))
        runs = await rig.worker.take(3)
        assert [(run.id, run.args, run.subject) for run in runs] == [
            (job.id, large, job.subject) for job in (free[39], free[38], free[37])
        ]
        states = await rig.states(*blocked)
        assert states == [State.WAITING] * 37 + [State.PARKED] * 3

    async def test_job_starts_at_a_gate_for_which_many_flows_wait(self, rig: Rig) -> None:
        last = rig.clock()
        jobs = [
            await rig.add(gates=(A,), tenant=f"t{flow}", due_at=last - flow) for flow in range(40)
        ]
        jobs.reverse()
        for place in range(3):
            (run,) = await rig.worker.take(5)
            assert run.id == jobs[place].id
            assert (await rig.gate("repo:a")).parked == 39 - place
            await rig.worker.finish(run)

    @pytest.mark.parametrize("end", ["fails", "loses its worker"])
    async def test_job_retried_without_delay_starts_before_those_parked_behind_it(
        self, rig: Rig, end: str
    ) -> None:
        policy = replace(POLICY, retry=RetryPolicy(attempts=9, base_ms=0))
        first, second, third = await rig.add_many(3, gates=(A,), policy=policy)
        for _ in range(2):
            run = await rig.worker.take_one()
            assert run.id == first.id
            assert await rig.new_worker().take(9) == []
            if end == "fails":
                await rig.worker.settle(Failed(run.id, run.run, error="boom"))
                rig.clock.advance(1)
            else:
                await rig.pass_time(LEASE_MS + 1)
            view = await rig.view(first.id)
            assert (view.state, view.due_at) == (State.WAITING, first.due_at)
        for job in (first, second, third):
            run = await rig.worker.take_one()
            assert run.id == job.id
            await rig.worker.finish(run)

    async def test_one_released_permit_moves_one_parked_job(self, rig: Rig) -> None:
        run, jobs = await park_behind_one(rig, 50)
        await rig.worker.finish(run)
        states = await rig.states(*jobs)
        assert (states.count(State.WAITING), states.count(State.PARKED)) == (1, 48)

    async def test_parked_jobs_start_by_priority_due_time_and_arrival(self, rig: Rig) -> None:
        holder = await rig.add(gates=(A,), priority=1)
        jobs = [await rig.add(gates=(A,), priority=priority) for priority in (30, 10, 20, 10)]
        run = await rig.worker.take_one()
        assert run.id == holder.id
        got: list[str] = []
        for _ in jobs:
            await rig.worker.take(9)
            await rig.worker.finish(run)
            run = await rig.worker.take_one()
            got.append(run.id)
        assert got == [jobs[n].id for n in (1, 3, 2, 0)]

    async def test_flows_of_a_keyed_gate_are_fed_in_the_order_of_their_heads(
        self, rig: Rig
    ) -> None:
        line = keyed(LINES, url="a")
        await rig.start(gates=(line,))
        await rig.close_gate("lines:a")
        # Each kind is a flow, and the flow created last has the first head. Its head needs more
        # than is free, and reserves; if the others were fed first, nothing would be left for it.
        others = [
            await rig.add(gates=(line,), priority=priority, kind=f"kind{priority}")
            for priority in (30, 20)
        ]
        both = keyed(LINES, 2, url="a")
        first = await rig.add(gates=(both,), priority=10, kind="kind10")
        assert await rig.worker.take(9) == []
        await rig.open_gate("lines:a")
        assert await rig.states(first, *others) == [State.PARKED] * 3
        assert (await rig.gate("lines:a")).reserved_for == first.id

    async def test_newcomer_of_higher_priority_passes_parked_jobs(self, rig: Rig) -> None:
        run, _ = await park_behind_one(rig, 3)
        urgent = await rig.add(gates=(A,), priority=1)
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(9) == [urgent.id]

    async def test_newcomer_never_passes_jobs_parked_before_it(self, rig: Rig) -> None:
        run, jobs = await park_behind_one(rig, 2)
        late = await rig.add(gates=(A,))
        await rig.worker.finish(run)
        run = await rig.worker.take_one()
        assert run.id == jobs[1].id
        assert await rig.worker.take(9) == []
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(9) == [late.id]

    async def test_changed_capacity_of_an_instance_feeds_it(self, rig: Rig) -> None:
        _, jobs = await park_behind_one(rig, 4)
        await rig.cap("repo:a", 3)
        assert await rig.worker.take_ids(9) == [jobs[1].id, jobs[2].id]

    async def test_changed_capacity_of_a_template_feeds_its_instances(self, rig: Rig) -> None:
        made = {use: await rig.add_many(3, gates=(use,)) for use in (A, B)}
        await rig.worker.take(2)
        await rig.worker.take(9)
        await rig.cap("repo:{url}", 2)
        assert set(await rig.worker.take_ids(9)) == {jobs[1].id for jobs in made.values()}

    async def test_reset_capacity_of_a_template_feeds_its_instances(self, rig: Rig) -> None:
        await rig.declare(REPO)
        await rig.cap("repo:{url}", 0)
        job = await rig.add(gates=(A,))
        assert await rig.worker.take(9) == []
        await rig.reset("repo:{url}")
        assert await rig.worker.take_ids(9) == [job.id]

    async def test_redeclared_capacity_feeds_its_instances(self, rig: Rig) -> None:
        _, jobs = await park_behind_one(rig, 3)
        await rig.declare(Slots("repo:{url}", 2))
        assert await rig.worker.take_ids(9) == [jobs[1].id]

    async def test_snoozed_failed_and_released_runs_feed_their_gate(self, rig: Rig) -> None:
        run, jobs = await park_behind_one(rig, 4)
        await rig.worker.settle(Failed(run.id, run.run, after_ms=50_000))
        run = await rig.worker.take_one()
        assert run.id == jobs[1].id
        await rig.worker.settle(Released(run.id, run.run))
        run = await rig.worker.take_one()
        assert run.id == jobs[1].id
        await rig.worker.settle(GaveBack(run.id, run.run, gate="repo:a"))
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_lost_lease_feeds_its_gate(self, rig: Rig) -> None:
        jobs = await rig.add_many(2, gates=(A,))
        worker, other = rig.new_worker(), rig.new_worker()
        await worker.take_one()
        await worker.take(9)
        await rig.pass_time(30_001)
        got = await other.take_ids(9)
        assert len(got) == 1
        assert got[0] in {job.id for job in jobs}

    async def test_cancelled_parked_job_leaves_the_others_in_order(self, rig: Rig) -> None:
        run, jobs = await park_behind_one(rig, 4)
        await rig.cancel(jobs[1].id)
        assert (await rig.gate("repo:a")).parked == 2
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_parked_job_edited_to_a_better_priority_goes_first(self, rig: Rig) -> None:
        run, jobs = await park_behind_one(rig, 4)
        await rig.act(Verb.EDIT, jobs[3].id, edit=Edit(priority=1))
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(9) == [jobs[3].id]

    async def test_parked_job_edited_to_a_later_due_time_waits_for_it(self, rig: Rig) -> None:
        run, jobs = await park_behind_one(rig, 3)
        due_at = rig.clock() + 5_000
        await rig.act(Verb.EDIT, jobs[1].id, edit=Edit(due_at=due_at))
        assert await rig.state(jobs[1].id) is State.SCHEDULED
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_expired_parked_job_is_dead(self, rig: Rig) -> None:
        await rig.add(gates=(A,))
        job = await rig.add(gates=(A,), expires_at=rig.clock() + 4_000)
        await rig.worker.take(9)
        assert await rig.state(job.id) is State.PARKED
        await rig.pass_time(4_001)
        view = await rig.view(job.id)
        assert (view.state, view.reason) == (State.DEAD, "expired")
        assert (await rig.gate("repo:a")).parked == 0

    async def test_shared_and_keyed_gate_of_one_job_lose_no_start(self, rig: Rig) -> None:
        gates = [(keyed(LINE), keyed(PHONE, phone=str(n % 3))) for n in range(9)]
        jobs = [await rig.add(gates=uses) for uses in gates]
        got: list[str] = []
        for _ in jobs:
            (run,) = await rig.worker.take(9)
            await rig.worker.finish(run)
            got.append(run.id)
        assert got == [job.id for job in jobs]

    async def test_keyed_rate_and_keyed_lock_together_lose_no_start(self, rig: Rig) -> None:
        gates = (keyed(PHONE, phone="1"), keyed(HOURLY, phone="1"))
        jobs = await rig.add_many(3, gates=gates)
        for job in jobs:
            run = await rig.worker.take_one()
            assert run.id == job.id
            assert await rig.worker.take(9) == []
            await rig.worker.finish(run)
            assert await rig.worker.take(9) == []
            rig.clock.advance(3_600_000)

    async def test_sweep_feeds_a_keyed_gate_whose_timer_is_due(self, rig: Rig) -> None:
        jobs = await rig.add_many(2, gates=(keyed(HOURLY, phone="1"),))
        await rig.worker.take(9)
        assert await rig.state(jobs[1].id) is State.PARKED
        await rig.pass_time(3_600_000)
        assert await rig.state(jobs[1].id) is State.WAITING

    async def test_timer_that_has_fed_its_gate_is_removed(self, rig: Rig) -> None:
        seldom = Rate("seldom:{phone}", 1, "10s")
        await rig.add_many(2, gates=(keyed(seldom, phone="1"),))
        await rig.worker.take(9)
        rig.clock.advance(10_000)
        (reply,) = await rig.sweep()
        assert reply.fed == 1
        reply = await rig.store.sweep(100)
        assert reply.next_at is not None
        assert reply.next_at > rig.clock()

    async def test_other_jobs_of_the_lane_start_behind_many_parked_ones(self, rig: Rig) -> None:
        await rig.add_many(300, gates=(A,), priority=1)
        plain = await rig.add_many(3, priority=900)
        got: list[str] = []
        for _ in range(10):
            reply = await rig.worker.ask(4)
            got += [run.id for run in reply.jobs]
            if not reply.again:
                break
        assert got[1:] == [job.id for job in plain]
        assert (await rig.gate("repo:a")).parked == 299


LICENCE = Slots("licence:{name}", 4)


class HoldBackGroup(ConformanceGroup):
    """A job that needs less does not pass one that needs more, at one gate in one flow."""

    async def test_weighted_head_holds_back_its_followers_at_that_gate(self, rig: Rig) -> None:
        three = keyed(LICENCE, 3, name="cad")
        two, one = keyed(LICENCE, 2, name="cad"), keyed(LICENCE, 1, name="cad")
        await rig.add(gates=(two,))
        head = await rig.add(gates=(three,))
        small = await rig.add(gates=(one,))
        elsewhere = await rig.add(gates=(keyed(LICENCE, 1, name="sim"),))
        runs = await rig.worker.take(9)
        assert [run.id for run in runs[1:]] == [elsewhere.id]
        await rig.worker.finish(runs[0])
        assert await rig.worker.take_ids(9) == [head.id, small.id]

    async def test_smaller_newcomer_does_not_pass_a_larger_parked_head(self, rig: Rig) -> None:
        three, two, one = (keyed(LICENCE, n, name="cad") for n in (3, 2, 1))
        await rig.add(gates=(two,))
        head = await rig.add(gates=(three,))
        run = await rig.worker.take_one()
        assert await rig.worker.take(9) == []
        small = await rig.add(gates=(one,))
        assert await rig.worker.take(9) == []
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(9) == [head.id, small.id]

    async def test_smaller_job_does_not_pass_at_another_pool_member(self, rig: Rig) -> None:
        desks = Pool("desk:{site}", {"a": 2, "b": 2})
        two, one = keyed(desks, 2, site="x"), keyed(desks, 1, site="x")
        await rig.add_many(2, gates=(one,))
        held = await rig.worker.take(9)
        assert [run.members["desk:x"] for run in held] == ["a", "b"]
        head, small = await rig.add(gates=(two,)), await rig.add(gates=(one,))
        assert await rig.worker.take(9) == []
        later = await rig.add(gates=(one,))
        assert await rig.worker.take(9) == []
        assert await rig.states(head, small, later) == [State.PARKED] * 3
        await rig.worker.finish(held[0])
        assert await rig.worker.take_ids(9) == [head.id, small.id]

    async def test_parked_job_that_leaves_lets_the_next_start_at_another_member(
        self, rig: Rig
    ) -> None:
        desks = Pool("desk:{site}", {"a": 2, "b": 2})
        two, one = keyed(desks, 2, site="x"), keyed(desks, 1, site="x")
        await rig.add_many(2, gates=(one,))
        assert len(await rig.worker.take(9)) == 2
        await rig.add(kind="big", priority=0, gates=(two,))
        head, small = await rig.add(gates=(two,)), await rig.add(gates=(one,))
        assert await rig.worker.take(9) == []
        await rig.cancel(head.id)
        assert await rig.worker.take_ids(9) == [small.id]

    @pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.EDIT])
    async def test_parked_head_that_leaves_lets_its_followers_start(
        self, rig: Rig, verb: Verb
    ) -> None:
        three, two, one = (keyed(LICENCE, n, name="cad") for n in (3, 2, 1))
        await rig.add(gates=(two,))
        head = await rig.add(gates=(three,))
        small = await rig.add(gates=(one,))
        await rig.worker.take_one()
        assert await rig.worker.take(9) == []
        assert await rig.states(head, small) == [State.PARKED] * 2
        await rig.act(verb, head.id, edit=Edit(due_at=rig.clock() + 9_000))
        assert await rig.worker.take_ids(9) == [small.id]

    @pytest.mark.parametrize("name", ["licence:cad", "licence:{name}"])
    async def test_parked_head_that_can_never_fit_a_lowered_capacity_holds_nobody_back(
        self, rig: Rig, name: str
    ) -> None:
        four, one = (keyed(LICENCE, n, name="cad") for n in (4, 1))
        first = await rig.add(gates=(one,))
        big = await rig.add_many(3, gates=(four,))
        small = await rig.add(gates=(one,))
        run = await rig.worker.take_one()
        assert run.id == first.id
        assert await rig.worker.take(9) == []
        await rig.cap(name, 3)
        (run_small,) = await rig.worker.take(9)
        assert run_small.id == small.id
        assert (await rig.why(big[0].id)).never_fits == ("licence:cad",)
        await rig.worker.finish(run, run_small)
        assert await rig.worker.take(9) == []
        await rig.cap(name, 4)
        assert await rig.worker.take_ids(9) == [big[0].id]

    async def test_all_jobs_that_a_raised_capacity_fits_are_fed(self, rig: Rig) -> None:
        await rig.declare(LICENCE)
        one = keyed(LICENCE, name="cad")
        await rig.cap("licence:cad", 0)
        # More than one step examines.
        for _ in range(2):
            await rig.add_many(600, gates=(one,))
        await claim_all(rig)
        await rig.cap("licence:cad", 2_000)
        assert len(await claim_all(rig)) == 1_200

    async def test_cascades_that_no_longer_fit_a_candidates_gate_are_examined_once(
        self, rig: Rig
    ) -> None:
        crew = Slots(for_candidate("crew"), 2)
        # As many as one step examines.
        await rig.add_many(
            MAX_BATCH,
            candidates=("ann",),
            gates=(keyed(crew, 2),),
            policy=policy_with(cascade=True),
        )
        await rig.cap("crew:ann", 1)
        assert await claim_all(rig) == []
        await rig.cap("crew:ann", 0)
        assert await claim_all(rig) == []

    async def test_job_behind_any_number_that_no_longer_fit_is_fed(self, rig: Rig) -> None:
        await rig.declare(LICENCE)
        one, two = (keyed(LICENCE, n, name="cad") for n in (1, 2))
        await rig.close_gate("licence:cad")
        # More than the two steps below examine.
        for _ in range(3):
            await rig.add_many(700, gates=(two,))
        last = await rig.add(gates=(one,))
        await claim_all(rig)
        await rig.cap("licence:cad", 1)
        await rig.open_gate("licence:cad")
        assert await claim_all(rig) == [last.id]

    async def test_job_behind_a_fed_one_that_no_longer_fits_starts_in_the_same_claim(
        self, rig: Rig
    ) -> None:
        await rig.declare(LICENCE)
        await rig.cap("licence:cad", 2)
        one, two = (keyed(LICENCE, n, name="cad") for n in (1, 2))
        await rig.add_many(2, gates=(two,))
        last = await rig.add(gates=(one,))
        (run,) = await rig.worker.take(9)
        await rig.worker.finish(run)
        # The second job waits in its flow now, with all of the gate's room.
        await rig.cap("licence:cad", 1)
        assert await rig.worker.take_ids(9) == [last.id]

    async def test_job_that_a_raised_capacity_fits_is_fed_behind_any_number_that_it_does_not(
        self, rig: Rig
    ) -> None:
        await rig.declare(LICENCE)
        await rig.cap("licence:cad", 1)
        # More than one step examines.
        for _ in range(2):
            await rig.add_many(700, gates=(keyed(LICENCE, 4, name="cad"),))
        assert await claim_all(rig) == []
        two, three, one = [await rig.add(gates=(keyed(LICENCE, n, name="cad"),)) for n in (2, 3, 1)]
        (run_one,) = await rig.worker.take(9)
        assert run_one.id == one.id
        await rig.cap("licence:cad", 3)
        (run_two,) = await rig.worker.take(9)
        assert run_two.id == two.id
        await rig.worker.finish(run_one, run_two)
        assert await rig.worker.take_ids(9) == [three.id]

    async def test_released_weighted_permits_feed_as_many_as_fit(self, rig: Rig) -> None:
        whole = await rig.add(gates=(keyed(LICENCE, 4, name="cad"),))
        jobs = await rig.add_many(5, gates=(keyed(LICENCE, 2, name="cad"),))
        run = await rig.worker.take_one()
        assert run.id == whole.id
        await rig.worker.take(9)
        await rig.worker.finish(run)
        states = await rig.states(*jobs)
        assert states.count(State.WAITING) == 2
        assert await rig.worker.take_ids(9) == [jobs[0].id, jobs[1].id]
