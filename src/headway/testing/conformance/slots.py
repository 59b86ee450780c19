"""Slots: capacity, weights, amounts that never fit, and holders that are named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from headway.contract.definitions import DeclareLane, LaneSpec, SetGate
from headway.contract.outcomes import (
    Died,
    Failed,
    GaveBack,
    HandedOver,
    NextStage,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Verdict,
)
from headway.core.errors import InvalidValue
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import use_of

LINE = Slots("line", 2)
WIDE = Slots("wide", 4)
LOCK = Slots("lock:{name}", 1)


class SlotsGroup(ConformanceGroup):
    """A counting semaphore whose permits are rows that name their holders."""

    async def test_no_more_permits_are_out_than_the_capacity(self, rig: Rig) -> None:
        await rig.declare(LINE)
        jobs = await rig.add_many(5, gates=(use_of(LINE),))
        assert await rig.worker.take_ids(5) == [jobs[0].id, jobs[1].id]
        assert await rig.worker.take(5) == []
        gate = await rig.gate("line")
        assert (gate.used, gate.free, gate.open) == (2, 0, False)

    async def test_permit_given_back_starts_exactly_one(self, rig: Rig) -> None:
        await rig.declare(LINE)
        jobs = await rig.add_many(5, gates=(use_of(LINE),))
        first, _ = await rig.worker.take(5)
        await rig.worker.settle(Succeeded(first.id, first.run))
        assert await rig.worker.take_ids(5) == [jobs[2].id]

    async def test_permit_names_its_holder(self, rig: Rig) -> None:
        await rig.declare(WIDE)
        job = await rig.add(gates=(use_of(WIDE, 3),))
        rig.clock.advance(70)
        await rig.worker.take()
        (holder,) = (await rig.gate("wide")).holders
        assert (holder.gate, holder.job, holder.run) == ("wide", job.id, 1)
        assert (holder.member, holder.amount, holder.since) == ("", 3, rig.clock())

    @pytest.mark.parametrize(
        "outcome",
        [Succeeded, Failed, Died, partial(Snoozed, after_ms=9), NextStage, Released],
        ids=["succeeded", "failed", "died", "snoozed", "next", "released"],
    )
    async def test_every_end_of_a_run_gives_its_permits_back(
        self, rig: Rig, outcome: Callable[..., Outcome]
    ) -> None:
        await rig.declare(LINE, LOCK)
        job = await rig.add(gates=(use_of(LINE), use_of(LOCK, name="a")))
        run = await rig.worker.take_one()
        assert (await rig.used("line"), await rig.used("lock:a")) == (1, 1)
        await rig.worker.settle(outcome(run.id, run.run))
        assert (await rig.used("line"), await rig.holders("line")) == (0, [])
        assert await rig.state(job.id) is not State.RUNNING
        other = await rig.add(gates=(use_of(LOCK, name="a"),), priority=1)
        assert other.id in await rig.worker.take_ids(2)

    async def test_job_takes_all_its_permits_or_none(self, rig: Rig) -> None:
        await rig.declare(LINE, WIDE, LOCK)
        await rig.cap("wide", 0)
        await rig.add(gates=(use_of(LINE), use_of(WIDE), use_of(LOCK, name="a")))
        await rig.add(gates=(use_of(LOCK, name="b"), use_of(LINE, 2)))
        await rig.worker.take(5)
        blocked = await rig.add(gates=(use_of(LOCK, name="b"), use_of(LOCK, name="c")))
        await rig.worker.take(5)
        assert (await rig.used("line"), await rig.used("wide")) == (2, 0)
        assert await rig.state(blocked.id) is State.PARKED
        free = await rig.add(gates=(use_of(LOCK, name="a"), use_of(LOCK, name="c")))
        assert await rig.worker.take_ids(5) == [free.id]

    async def test_jobs_that_ask_for_gates_in_opposite_order_never_deadlock(self, rig: Rig) -> None:
        await rig.declare(LOCK)
        one, two = use_of(LOCK, name="1"), use_of(LOCK, name="2")
        jobs = [await rig.add(gates=gates) for gates in ((one, two), (two, one)) * 3]
        got: list[str] = []
        for _ in jobs:
            run = await rig.worker.take_one()
            assert await rig.worker.take(5) == []
            await rig.worker.settle(Succeeded(run.id, run.run))
            got.append(run.id)
        assert sorted(got) == sorted(job.id for job in jobs)

    async def test_weighted_head_that_does_not_fit_holds_its_followers_back(self, rig: Rig) -> None:
        await rig.declare(WIDE)
        jobs = await rig.add_many(3, gates=(use_of(WIDE, 3),))
        first = await rig.worker.take_one()
        assert await rig.worker.take(5) == []
        await rig.worker.settle(Succeeded(first.id, first.run))
        assert await rig.worker.take_ids(5) == [jobs[1].id]

    async def test_amount_above_the_capacity_waits_and_says_never_fits(self, rig: Rig) -> None:
        await rig.declare(WIDE, LOCK)
        shared = await rig.add(gates=(use_of(WIDE, 5),))
        keyed = await rig.add(gates=(use_of(LOCK, 2, name="a"),), kind="text")
        assert await rig.worker.take(5) == []
        assert (await rig.why(shared.id)).never_fits == ("wide",)
        assert (await rig.why(keyed.id)).never_fits == ("lock:a",)

    async def test_amount_that_never_fits_at_a_keyed_gate_holds_nobody_back(self, rig: Rig) -> None:
        await rig.declare(LOCK)
        await rig.add(gates=(use_of(LOCK, 2, name="a"),))
        good = await rig.add(gates=(use_of(LOCK, 1, name="a"),))
        run = await rig.worker.take_one()
        assert run.id == good.id
        follower = await rig.add(gates=(use_of(LOCK, 1, name="a"),))
        assert await rig.worker.take(5) == []
        await rig.worker.settle(Succeeded(run.id, run.run))
        assert await rig.worker.take_ids(5) == [follower.id]

    async def test_amount_that_never_fitted_starts_when_the_capacity_is_raised(
        self, rig: Rig
    ) -> None:
        await rig.declare(WIDE, LOCK)
        shared = await rig.add(gates=(use_of(WIDE, 5),))
        keyed = await rig.add(gates=(use_of(LOCK, 2, name="a"),), kind="text")
        assert await rig.worker.take(5) == []
        await rig.cap("wide", 5)
        await rig.cap("lock:a", 2)
        assert await rig.worker.take_ids(5) == [shared.id, keyed.id]

    async def test_amount_that_never_fitted_starts_when_a_template_is_raised(
        self, rig: Rig
    ) -> None:
        await rig.declare(LOCK)
        keyed = await rig.add(gates=(use_of(LOCK, 2, name="a"),))
        assert await rig.worker.take(5) == []
        await rig.cap("lock:{name}", 2)
        assert await rig.worker.take_ids(5) == [keyed.id]

    async def test_lowered_capacity_revokes_nothing_and_lets_none_start_until_it_is_under(
        self, rig: Rig
    ) -> None:
        await rig.declare(WIDE)
        jobs = await rig.add_many(6, gates=(use_of(WIDE),))
        runs = await rig.worker.take(4)
        await rig.cap("wide", 2)
        gate = await rig.gate("wide")
        assert (gate.used, gate.free, gate.capacity) == (4, 0, 2)
        for run in runs[:2]:
            assert await rig.worker.say(Succeeded(run.id, run.run)) is Verdict.DONE
            assert await rig.worker.take(5) == []
        await rig.worker.settle(Succeeded(runs[2].id, runs[2].run))
        assert await rig.worker.take_ids(5) == [jobs[4].id]

    async def test_raised_capacity_lets_what_waits_start(self, rig: Rig) -> None:
        await rig.declare(LINE, LOCK)
        shared = await rig.add_many(4, gates=(use_of(LINE),))
        keyed = await rig.add_many(3, gates=(use_of(LOCK, name="a"),), kind="text")
        await rig.worker.take(9)
        await rig.cap("line", 3)
        await rig.cap("lock:a", 2)
        assert await rig.worker.take_ids(9) == [shared[2].id, keyed[1].id]

    async def test_capacity_of_nothing_lets_nothing_pass(self, rig: Rig) -> None:
        await rig.declare(LINE)
        await rig.cap("line", 0)
        job = await rig.add(gates=(use_of(LINE),))
        assert await rig.worker.take(5) == []
        await rig.cap("line", 1)
        assert await rig.worker.take_ids(5) == [job.id]

    async def test_operators_capacity_of_one_instance_leaves_the_others(self, rig: Rig) -> None:
        await rig.declare(LOCK)
        await rig.cap("lock:a", 2)
        for name in ("a", "b"):
            await rig.add_many(3, gates=(use_of(LOCK, name=name),))
        await rig.worker.take(9)
        assert (await rig.used("lock:a"), await rig.used("lock:b")) == (2, 1)

    async def test_permit_held_for_the_run_comes_back_at_hand_over(self, rig: Rig) -> None:
        await rig.declare(LINE, WIDE)
        job = await rig.add(gates=(use_of(LINE, hold="run"), use_of(WIDE, 3)))
        await rig.worker.take_and_say(HandedOver, key="call-1", timeout_ms=60_000)
        assert (await rig.used("line"), await rig.used("wide")) == (0, 3)
        await rig.tell("call-1")
        assert await rig.state(job.id) is State.SUCCEEDED
        assert await rig.used("wide") == 0

    async def test_give_back_frees_one_gate_early_and_once(self, rig: Rig) -> None:
        await rig.declare(LINE, LOCK)
        await rig.add(gates=(use_of(LINE, 2), use_of(LOCK, name="a")))
        follower = await rig.add(gates=(use_of(LOCK, name="a"),), kind="text")
        run = await rig.worker.take_one()
        assert await rig.worker.say(GaveBack(run.id, run.run, gate="lock:a")) is Verdict.DONE
        assert (await rig.used("line"), await rig.used("lock:a")) == (2, 0)
        assert await rig.worker.take_ids(5) == [follower.id]
        await rig.worker.settle(GaveBack(run.id, run.run, gate="lock:a"))
        assert await rig.holders("lock:a") == [follower.id]
        await rig.worker.settle(Succeeded(run.id, run.run))
        assert (await rig.used("line"), await rig.used("lock:a")) == (0, 1)

    async def test_lane_concurrency_counts_handlers_and_not_what_awaits(self, rig: Rig) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name=LANE, concurrency=1)))
        jobs = await rig.add_many(3)
        run = await rig.worker.take_one()
        assert await rig.worker.take(5) == []
        await rig.worker.settle(HandedOver(run.id, run.run, key="call-1", timeout_ms=60_000))
        assert await rig.worker.take_ids(5) == [jobs[1].id]
        assert await rig.used(f"lane:{LANE}") == 1

    async def test_two_lanes_share_one_gate_by_its_name(self, rig: Rig) -> None:
        await rig.declare(LINE)
        for lane in ("a", "b"):
            await rig.add_many(2, lane=lane, gates=(use_of(LINE),))
        assert len(await rig.worker.take(9, "a")) == 2
        run = await rig.worker.take(9, "b")
        assert run == []

    async def test_pool_or_rate_values_are_refused_for_a_slots(self, rig: Rig) -> None:
        await rig.declare(LINE)
        with pytest.raises(InvalidValue):
            await rig.define(SetGate(name="line", limit=3))
        with pytest.raises(InvalidValue):
            await rig.define(SetGate(name="line", members=(("a", 1),)))
        assert (await rig.gate("line")).capacity == 2
