"""The store's time, which never goes back, and what wakes waiters."""

from __future__ import annotations

import pytest

from headway.contract.definitions import DeclareLane, LaneSpec
from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import Closing, Failed, Released, Succeeded, Verdict
from headway.contract.views import StatsQuery
from headway.core.gates.slots import Slots
from headway.core.job import MAX_BATCH
from headway.core.state import State
from headway.testing.conformance.rig import ConformanceGroup, Rig
from headway.testing.conformance.worker import LANE, LEASE_MS
from headway.testing.jobs import HOUR_MS, Gate, keyed

LINE = Slots("line", 1)


class TimeGroup(ConformanceGroup):
    """now = max(the highest time ever used, the clock)."""

    async def test_time_stands_still_while_the_clock_is_behind(self, rig: Rig) -> None:
        high = rig.clock()
        await rig.add()
        rig.clock.advance(-3_600_000)
        reply = await rig.worker.ask()
        assert (reply.now, reply.jobs[0].due_at < high) == (high, True)
        job = await rig.add(due_at=None)
        view = await rig.view(job.id)
        assert (view.created_at, view.due_at) == (high, high)
        stats = await rig.store.read(StatsQuery())
        assert (stats.now, stats.clock_ahead_ms) == (high, 3_600_000)

    async def test_time_continues_when_the_clock_has_caught_up(self, rig: Rig) -> None:
        job = await rig.add(due_at=rig.clock() + 1_000)
        await rig.sweep()
        rig.clock.advance(-500)
        assert await rig.worker.take() == []
        rig.clock.advance(1_500)
        assert await rig.worker.take_ids() == [job.id]

    async def test_lease_lasts_its_whole_duration_though_the_clock_jumps_back(
        self, rig: Rig
    ) -> None:
        run = await rig.start()
        rig.clock.advance(-LEASE_MS * 5)
        await rig.sweep()
        rig.clock.advance(LEASE_MS * 6 - 1)
        await rig.sweep()
        assert await rig.worker.finish(run) == [Verdict.DONE]

    async def test_job_due_by_a_clock_that_was_ahead_stays_due(self, rig: Rig) -> None:
        job = await rig.add(due_at=rig.clock() + 5_000)
        rig.clock.advance(5_000)
        await rig.sweep()
        rig.clock.advance(-5_000)
        assert await rig.worker.take_ids() == [job.id]

    async def test_retry_counts_from_the_stores_time(self, rig: Rig) -> None:
        run = await rig.start()
        high = rig.clock()
        rig.clock.advance(-60_000)
        await rig.worker.report(Failed(run.id, run.run, after_ms=1_000))
        assert (await rig.view(run.id)).due_at == high + 1_000
        assert await rig.worker.take() == []
        rig.clock.jump_to(high + 1_000)
        assert await rig.worker.take_ids() == [run.id]

    async def test_jump_far_ahead_ends_only_what_expires(self, rig: Rig) -> None:
        await rig.add_many(2, expires_at=None)
        await rig.worker.take()
        await rig.pass_time(10 * 365 * 86_400_000)
        states = [job.state for job in (await rig.dump()).jobs]
        assert sorted(states) == [State.SCHEDULED, State.WAITING]
        await rig.check()


class WaitGroup(ConformanceGroup):
    """Wakes hint that something may be claimable; no committed change is missed."""

    async def test_wait_returns_at_once_for_changes_after_the_claim(self, rig: Rig) -> None:
        reply = await rig.worker.ask()
        await rig.add()
        await rig.wait(reply.seen)

    async def test_wait_returns_when_a_job_that_arrived_after_the_claim_is_due(
        self, rig: Rig
    ) -> None:
        reply = await rig.worker.ask()
        await rig.add(due_at=rig.clock() + 1_000)
        rig.clock.advance(1_000)
        await rig.wait(reply.seen)

    async def test_wait_returns_when_a_job_arrives(self, rig: Rig) -> None:
        reply = await rig.worker.ask()
        async with rig.wakes(reply.seen):
            await rig.add()

    async def test_wait_returns_when_a_claim_leaves_due_jobs_scheduled(self, rig: Rig) -> None:
        due_at = rig.clock() + 1_000
        await rig.add_many(MAX_BATCH, due_at=due_at)
        await rig.add(due_at=due_at)
        reply = await rig.worker.ask()
        rig.clock.advance(1_000)
        async with rig.wakes(reply.seen):
            await rig.worker.take()

    @pytest.mark.parametrize(
        "gate", [LINE, keyed(Slots("lock:{name}", 1), name="a")], ids=["shared", "keyed"]
    )
    async def test_wait_returns_when_a_permit_is_released(self, rig: Rig, gate: Gate) -> None:
        await rig.add_many(2, gates=(gate,))
        run = await rig.worker.take_one()
        reply = await rig.worker.ask()
        assert reply.jobs == []
        async with rig.wakes(reply.seen):
            await rig.worker.finish(run)

    async def test_wait_returns_when_a_lane_with_concurrency_has_room_again(self, rig: Rig) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name=LANE, concurrency=1)))
        await rig.add_many(2)
        run = await rig.worker.take_one()
        reply = await rig.new_worker().ask()
        assert reply.jobs == []
        async with rig.wakes(reply.seen):
            await rig.worker.finish(run)

    async def test_wait_returns_when_a_job_is_handed_back(self, rig: Rig) -> None:
        run = await rig.start()
        reply = await rig.new_worker().ask()
        async with rig.wakes(reply.seen):
            await rig.worker.report(Released(run.id, run.run))

    async def test_wait_returns_when_an_operator_raises_a_capacity(self, rig: Rig) -> None:
        await rig.add_many(2, gates=(LINE,))
        reply = await rig.worker.ask()
        assert len(reply.jobs) == 1
        reply = await rig.worker.ask()
        async with rig.wakes(reply.seen):
            await rig.cap("line", 2)

    async def test_lane_woken_without_need_is_woken_again(self, rig: Rig) -> None:
        await rig.add_many(2, gates=(LINE,))
        await rig.add(lane="other", gates=(LINE,))
        holder, waiter = rig.new_worker(), rig.new_worker()
        for _ in range(2):
            run = await holder.take_one()
            reply = await waiter.ask(1, "other")
            assert reply.jobs == []
            async with rig.wakes(reply.seen, "other"):
                await holder.finish(run)
        assert len(await waiter.take(1, "other")) == 1

    async def test_every_blocked_lane_of_many_is_woken(self, rig: Rig) -> None:
        await rig.add(gates=(LINE,))
        holder = rig.new_worker()
        run = await holder.take_one()
        lanes, worker = [f"lane-{number}" for number in range(100)], rig.new_worker()
        await rig.enqueue(*(rig.jobs.make(lane=lane, gates=(LINE,)) for lane in lanes))
        seen = [(await worker.ask(1, lane)).seen for lane in lanes]
        async with rig.wakes(seen[-1], lanes[0], lanes[-1]):
            await holder.finish(run)

    async def test_wait_returns_when_a_gate_is_opened(self, rig: Rig) -> None:
        await rig.add()
        await rig.close_gate("all")
        reply = await rig.worker.ask()
        async with rig.wakes(reply.seen):
            await rig.open_gate("all")

    async def test_wait_returns_when_a_gate_closed_by_a_handler_opens(self, rig: Rig) -> None:
        await rig.declare(LINE)
        run = await rig.start()
        reply = await rig.worker.ask()
        closing = Closing(gate="line", for_ms=1)
        await rig.worker.report(Succeeded(run.id, run.run, close=(closing,)))
        await rig.wait(reply.seen)

    @pytest.mark.parametrize("verb", [Verb.RETRY, Verb.EDIT, Verb.RUN_NOW])
    async def test_wait_returns_when_an_operator_makes_a_job_ready(
        self, rig: Rig, verb: Verb
    ) -> None:
        job = await rig.add(due_at=rig.clock() + HOUR_MS)
        if verb is Verb.RETRY:
            await rig.cancel(job.id)
        reply = await rig.worker.ask()
        edit = Edit(due_at=rig.clock()) if verb is Verb.EDIT else Edit()
        assert await rig.act(verb, job.id, edit=edit) == [Acted.DONE]
        await rig.wait(reply.seen)

    async def test_sweep_that_finds_due_jobs_wakes_late_waiters(self, rig: Rig) -> None:
        # Setting the clock forward, for example after a suspend, does not shorten waits by itself.
        await rig.add(due_at=rig.clock() + HOUR_MS)
        reply = await rig.worker.ask()
        rig.clock.advance(HOUR_MS)
        async with rig.wakes(reply.seen):
            assert [one.promoted for one in await rig.sweep()] == [1]
        assert len(await rig.worker.take()) == 1

    async def test_wait_returns_at_a_time_in_the_past(self, rig: Rig) -> None:
        reply = await rig.worker.ask()
        await rig.wait(reply.seen, rig.clock())
