"""Claims: repeats, numbers, bounds, lanes, the cursor over many flows, the reply's fields."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import CloseGate
from headway.contract.outcomes import Failed, HandedOver, Released, Succeeded
from headway.core.errors import InvalidValue
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import MAX_BATCH
from headway.core.state import State
from headway.testing.conformance.rig import SHORT, ConformanceGroup, Rig
from headway.testing.conformance.worker import LANE, LEASE_MS
from headway.testing.jobs import POLICY, keyed, use_of

LINE = Slots("line", 3)
PHONE = Slots("phone:{phone}", 3)
NUMBERS = Pool("numbers", {"+1": 2, "+2": 1})
SHAPES: dict[str, tuple[GateUse, ...]] = {
    "plain": (),
    "shared": (use_of(LINE),),
    "keyed": (use_of(PHONE, phone="1"),),
    "pool": (use_of(NUMBERS),),
}


class ClaimGroup(ConformanceGroup):
    """Each job is claimed by one worker, once."""

    async def test_claim_returns_every_field_of_the_job(self, rig: Rig) -> None:
        job = await rig.add(stage="first")
        reply = await rig.worker.ask()
        (run,) = reply.jobs
        assert (run.id, run.run, run.attempt) == (job.id, 1, 1)
        assert (run.kind, run.stage, run.lane, run.tenant) == ("dial", "first", LANE, "acme")
        assert (run.subject, run.args, run.priority) == (job.subject, job.args, 300)
        assert (run.due_at, run.policy, run.candidate) == (job.due_at, POLICY, "")
        assert (run.gated, dict(run.members)) == (False, {})
        assert (reply.now, reply.lease_until) == (rig.clock(), rig.clock() + LEASE_MS)

    async def test_claimed_job_runs_under_its_worker(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take()
        view = await rig.view(job.id)
        assert (view.state, view.worker, view.run, view.attempt) == ("running", rig.worker.id, 1, 1)
        (run,) = view.runs
        assert (run.run, run.attempt, run.worker) == (1, 1, rig.worker.id)
        assert (run.claimed_at, run.ended_at, run.outcome) == (rig.clock(), None, "")

    async def test_repeated_request_returns_the_same_jobs_and_starts_none(self, rig: Rig) -> None:
        await rig.add_many(5)
        first = await rig.worker.ask(3)
        rig.clock.advance(1_000)
        again = await rig.worker.repeat(3)
        assert again.jobs == first.jobs
        assert (again.again, again.now, again.lease_until) == (True, rig.clock(), first.lease_until)
        assert await rig.total("started") == 3
        assert (await rig.view(first.jobs[0].id)).run == 1
        await rig.worker.take(2)
        nothing_new = await rig.worker.ask(3)
        assert (nothing_new.jobs, nothing_new.again) == ([], False)

    @pytest.mark.parametrize("shape", SHAPES)
    async def test_repeated_request_returns_every_field_in_order(
        self, rig: Rig, shape: str
    ) -> None:
        await rig.declare(LINE, PHONE, NUMBERS)
        gates = SHAPES[shape]
        first, late, early, same, last = [
            await rig.add(
                priority=priority, due_at=rig.clock() - before, gates=gates,
                **SHORT,
            )
            for priority, before in ((100, 1), (200, 3), (200, 9), (200, 9), (300, 99))
        ]  # fmt: skip
        run = await rig.worker.take_and_report(Failed, after_ms=0)
        reply = await rig.worker.ask(5)
        started = [one.id for one in (first, early, same, late, last)][: 3 if gates else 5]
        assert [one.id for one in reply.jobs] == started
        rig.clock.advance(40)
        again = await rig.worker.repeat(5)
        assert again.jobs == reply.jobs
        assert {one.gated for one in again.jobs} == {bool(gates)}
        for one in again.jobs:
            view = await rig.view(one.id)
            (*_, live) = view.runs
            assert (view.state, view.worker) == (State.RUNNING, rig.worker.id)
            assert (view.run, view.attempt) == (one.run, one.attempt) == (live.run, live.attempt)
            assert (live.worker, live.claimed_at) == (rig.worker.id, rig.clock() - 40)
            assert one.run == (2 if one.id == run.id else 1)

    async def test_repeated_request_returns_only_jobs_the_worker_still_runs(self, rig: Rig) -> None:
        await rig.add_many(4)
        first, second, third, fourth = await rig.worker.take(4)
        await rig.worker.settle(
            Succeeded(second.id, second.run),
            HandedOver(fourth.id, fourth.run, key="call-1", timeout_ms=60_000),
        )
        assert (await rig.worker.repeat(4)).jobs == [first, third]

    async def test_repeated_request_leaves_jobs_that_have_become_due_to_the_next_one(
        self, rig: Rig
    ) -> None:
        await rig.declare(LINE)
        gates = (use_of(LINE),)
        await rig.add_many(2, gates=gates)
        later = await rig.add(gates=gates, due_at=rig.clock() + 1_000)
        await rig.worker.take()
        (run,) = await rig.worker.take()
        rig.clock.advance(1_000)
        assert (await rig.worker.repeat()).jobs == [run]
        assert await rig.state(later.id) is State.SCHEDULED
        await rig.check()
        assert await rig.worker.take_ids() == [later.id]

    async def test_due_jobs_of_a_lane_that_a_claim_names_twice_are_counted_once(
        self, rig: Rig
    ) -> None:
        due_at = rig.clock() + 1_000
        await rig.add_many(MAX_BATCH, due_at=due_at)
        last = await rig.add(due_at=due_at + 1)
        rig.clock.advance(1_001)
        assert len(await rig.worker.take(MAX_BATCH, LANE, LANE)) == MAX_BATCH
        await rig.check()
        assert await rig.worker.take_ids() == [last.id]

    async def test_repeat_of_a_claim_that_started_nothing_loses_no_job(self, rig: Rig) -> None:
        assert await rig.worker.take(3) == []
        job = await rig.add()
        first = (await rig.worker.repeat(3)).jobs
        assert (await rig.worker.repeat(3)).jobs == first
        got = [run.id for run in (*first, *await rig.worker.take(3))]
        assert got == [job.id]

    async def test_smaller_request_number_returns_and_starts_nothing(self, rig: Rig) -> None:
        await rig.add_many(3)
        await rig.worker.take()
        await rig.worker.take()
        assert (await rig.worker.repeat(1, request=1)).jobs == []
        assert await rig.total("started") == 2

    async def test_run_increases_with_every_claim_and_a_released_attempt_is_repeated(
        self, rig: Rig
    ) -> None:
        job = await rig.add()
        for number in (1, 2, 3):
            run = await rig.worker.take_one()
            assert (run.run, run.attempt) == (number, 1)
            await rig.worker.settle(Released(run.id, run.run))
        assert [run.run for run in (await rig.view(job.id)).runs] == [1, 2, 3]

    async def test_claim_starts_at_most_n_jobs(self, rig: Rig) -> None:
        await rig.add_many(5)
        assert len(await rig.worker.take(2)) == 2
        assert len(await rig.worker.take(9)) == 3

    async def test_full_claim_says_claim_again_only_if_jobs_are_left(self, rig: Rig) -> None:
        await rig.add_many(3)
        await rig.worker.ask(3)
        left = await rig.worker.ask(3)
        assert (left.jobs, left.again, left.next_at) == ([], False, None)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"n": 0}, {"n": MAX_BATCH + 1}, {"free": -1}, {"n": MAX_BATCH + 1, "free": -1},
            {"lanes": ()}, {"lanes": ((LANE, 0),)}, {"lanes": ((LANE, 1), ("mails", 0))},
            {"request": 0}, {"request": -1}, {"lease_ms": 0},
        ],
        ids=repr,
    )  # fmt: skip
    async def test_invalid_claim_is_refused_and_starts_nothing(
        self, rig: Rig, wrong: dict[str, Any]
    ) -> None:
        await rig.add_many(2)
        most = ClaimRequest(worker="w", request=1, lanes=((LANE, 1),), n=MAX_BATCH, free=0)
        async with rig.refuses(InvalidValue):
            await rig.store.claim(replace(most, **wrong))
        assert len((await rig.store.claim(most)).jobs) == 2

    async def test_claim_that_starts_nothing_extends_a_half_expired_lease(self, rig: Rig) -> None:
        await rig.add()
        until = (await rig.worker.ask()).lease_until
        assert until == rig.clock() + LEASE_MS
        for passed, extended in ((LEASE_MS // 2, 0), (1, LEASE_MS // 2 + 1)):
            rig.clock.advance(passed)
            until += extended
            assert (await rig.worker.ask()).lease_until == until
            (view,) = (await rig.dump()).workers
            assert view.lease_until == until
            assert view.seen_at == (rig.clock() if extended else rig.clock() - passed)
        assert until == rig.clock() + LEASE_MS

    async def test_claim_never_shortens_a_lease(self, rig: Rig) -> None:
        await rig.add_many(2)
        until = (await rig.worker.ask()).lease_until
        reply = await rig.worker.ask(lease_ms=LEASE_MS // 3)
        assert (len(reply.jobs), reply.lease_until) == (1, until)

    async def test_gated_jobs_start_only_for_idle_handlers_and_others_up_to_n(
        self, rig: Rig
    ) -> None:
        gate = Slots("line", 100)
        gated = await rig.add_many(5, gates=(gate,))
        plain = await rig.add_many(5, kind="text")
        jobs = await rig.worker.take(9, free=2)
        got = [job.id for job in jobs]
        assert got == [*(job.id for job in gated[:2]), *(job.id for job in plain)]
        assert [job.gated for job in jobs] == [True] * 2 + [False] * 5

    async def test_claim_without_an_idle_handler_starts_no_gated_job(self, rig: Rig) -> None:
        phone = Slots("phone:{phone}", 1)
        gated = await rig.add(gates=(keyed(phone, phone=1),))
        plain = await rig.add(kind="text")
        assert [run.id for run in await rig.worker.take(9, free=0)] == [plain.id]
        assert await rig.states(gated) == [State.WAITING]
        assert [run.id for run in await rig.worker.take(9, free=1)] == [gated.id]

    async def test_job_under_a_capped_implicit_gate_counts_as_gated(self, rig: Rig) -> None:
        await rig.cap("tenant:acme", 5)
        await rig.add_many(3)
        assert await rig.worker.take(9, free=0) == []
        (run,) = await rig.worker.take(9, free=1)
        assert run.gated

    async def test_two_workers_never_get_the_same_job(self, rig: Rig) -> None:
        jobs = await rig.add_many(30)
        workers = [rig.new_worker() for _ in range(3)]
        got = [job for _ in range(5) for worker in workers for job in await worker.take_ids(2)]
        assert got == [job.id for job in jobs]

    async def test_claim_takes_only_from_the_requested_lanes(self, rig: Rig) -> None:
        await rig.add(lane="texts")
        assert await rig.worker.take(9, LANE, "mails") == []

    async def test_finished_job_is_never_claimed_again(self, rig: Rig) -> None:
        await rig.add()
        await rig.worker.take_and_report(Succeeded)
        await rig.pass_time(LEASE_MS * 2)
        assert await rig.worker.take(9) == []


class LaneGroup(ConformanceGroup):
    """Several lanes in one claim."""

    async def test_strict_lanes_drain_in_order(self, rig: Rig) -> None:
        late = await rig.add_many(3, lane="late", priority=1)
        soon = await rig.add_many(3, lane="soon", priority=9)
        reply = await rig.worker.ask(4, "soon", "late", order="strict")
        assert [job.id for job in reply.jobs] == [job.id for job in (*soon, late[0])]

    async def test_weighted_lanes_share_a_claim_by_weight(self, rig: Rig) -> None:
        for lane in ("a", "b", "c"):
            await rig.add_many(200, lane=lane)
        reply = await rig.worker.ask(120, ("a", 3), ("b", 2), ("c", 1))
        share = Counter(job.lane for job in reply.jobs)
        assert (share["a"], share["b"], share["c"]) == (60, 40, 20)

    async def test_weighted_lanes_share_small_claims_by_weight(self, rig: Rig) -> None:
        for lane in ("a", "b"):
            await rig.add_many(400, lane=lane)
        share = Counter[str]()
        async for reply in rig.worker.claims(200, 1, ("a", 3), ("b", 1)):
            share.update(job.lane for job in reply.jobs)
        assert 130 <= share["a"] <= 170
        assert share.total() == 200

    async def test_weighted_lanes_share_the_few_free_handlers(self, rig: Rig) -> None:
        gate = Slots("line", 1000)
        for lane in ("a", "b"):
            await rig.add_many(60, lane=lane, gates=(gate,))
        share = Counter[str]()
        for _ in range(60):
            reply = await rig.worker.ask(30, ("a", 2), ("b", 1), free=1)
            share.update(job.lane for job in reply.jobs)
        assert share.total() == 60
        assert 30 <= share["a"] <= 50

    async def test_next_opening_of_any_lane_is_returned(self, rig: Rig) -> None:
        pace = Rate("pace", 1, "10s")
        await rig.add_many(2, lane="b", gates=(pace,))
        assert len(await rig.worker.take(2, "b")) == 1
        reply = await rig.worker.ask(2, "a", "b", "c")
        assert (reply.jobs, reply.next_at) == ([], rig.clock() + 10_000)

    async def test_free_handlers_are_counted_over_all_flows(self, rig: Rig) -> None:
        gate = Slots("line", 1000)
        await rig.add_many(3, kind="gated", priority=0, gates=(gate,))
        for number in range(9):
            await rig.add_many(4, kind=f"plain-{number}")
        jobs = await rig.worker.take(12, free=1)
        assert [job.kind for job in jobs].count("gated") == 1
        assert len(jobs) == 12

    async def test_empty_lane_leaves_its_share_to_the_others(self, rig: Rig) -> None:
        jobs = await rig.add_many(5, lane="b")
        assert await rig.new_worker().take_ids(5, ("a", 1000), ("b", 1)) == [job.id for job in jobs]

    async def test_closed_lane_leaves_its_share_to_the_others(self, rig: Rig) -> None:
        await rig.add_many(5, lane="a")
        jobs = await rig.add_many(5, lane="b")
        await rig.close_gate("lane:a")
        assert await rig.new_worker().take_ids(5, ("a", 1000), ("b", 1)) == [job.id for job in jobs]

    async def test_order_within_each_lane_is_kept(self, rig: Rig) -> None:
        made = {lane: [job.id for job in await rig.add_many(5, lane=lane)] for lane in ("a", "b")}
        jobs = await rig.worker.take(10, ("a", 2), ("b", 1))
        for lane, expected in made.items():
            assert [job.id for job in jobs if job.lane == lane] == expected


class ManyFlowsGroup(ConformanceGroup):
    """More flows than one claim examines."""

    async def test_claim_is_filled_from_the_only_open_flow_among_closed_ones(
        self, rig: Rig
    ) -> None:
        for number in range(9):
            await rig.add(tenant=f"paused-{number}")
            await rig.close_gate(f"tenant:paused-{number}")
        await rig.add_many(60, tenant="acme")
        assert len((await rig.worker.ask(50)).jobs) == 50

    async def test_open_flow_is_found_among_hundreds_of_closed_ones(self, rig: Rig) -> None:
        await rig.enqueue(
            *(rig.jobs.make(tenant=f"tenant-{n:03}", priority=n % 7) for n in range(600))
        )
        chosen = await rig.add(tenant="tenant-300", priority=9)
        await rig.define(*(CloseGate(name=f"tenant:tenant-{n:03}") for n in range(600) if n != 300))
        got: list[str] = []
        async for reply in rig.worker.claims(12, 1):
            got += [job.id for job in reply.jobs]
            if len(got) < 2:
                assert reply.again, "an open flow was still unexamined"
            if not reply.again:
                break
        assert len(got) == 2
        assert got[1] == chosen.id

    async def test_cursor_that_has_wrapped_around_says_wait(self, rig: Rig) -> None:
        await rig.enqueue(*(rig.jobs.make(tenant=f"tenant-{n:03}") for n in range(600)))
        await rig.close_gate("all")
        async for reply in rig.worker.claims(12, 1):
            assert reply.jobs == []
            if not reply.again:
                return
        pytest.fail("the round of the cursor never ends")

    async def test_opening_behind_the_cursor_is_not_missed(self, rig: Rig) -> None:
        await rig.enqueue(*(rig.jobs.make(tenant=f"tenant-{n:03}") for n in range(600)))
        await rig.define(*(CloseGate(name=f"tenant:tenant-{n:03}") for n in range(600)))
        reply = await rig.worker.ask(1)
        assert reply.again
        # Behind the cursor, and not among the first flows, which fill up the last page.
        await rig.open_gate("tenant:tenant-200")
        got = 0
        while reply.again:
            reply = await rig.worker.ask(1, after=reply.after)
            got += len(reply.jobs)
        if not got:
            await rig.wait(reply.seen)
            assert len(await rig.worker.take(1)) == 1

    async def test_every_flow_is_eventually_served(self, rig: Rig) -> None:
        jobs = [rig.jobs.make(tenant=f"tenant-{n:03}") for n in range(600)]
        await rig.enqueue(*jobs)
        await rig.enqueue(*(rig.jobs.make().changed(tenant=job.tenant) for job in jobs))
        got: set[str] = set()
        async for reply in rig.worker.claims(60, 50):
            got.update(job.id for job in reply.jobs)
            await rig.worker.finish(*reply.jobs)
            if not reply.again and not reply.jobs:
                break
        assert len(got) == 1200

    async def test_last_flows_do_not_run_ahead_of_the_first(self, rig: Rig) -> None:
        order = [(7 * k) % 300 for k in range(900)]
        jobs = [
            rig.jobs.make(tenant=f"tenant-{n:03}", due_at=rig.clock() - 900 + k)
            for k, n in enumerate(order)
        ]
        await rig.enqueue(*jobs)
        left = [job.id for job in jobs]
        early = 0
        async for reply in rig.worker.claims(900, 20):
            early = max([early, *(left.index(job.id) for job in reply.jobs)])
            for job in reply.jobs:
                left.remove(job.id)
            await rig.worker.finish(*reply.jobs)
            if not left:
                break
        assert not left
        assert early < 80
