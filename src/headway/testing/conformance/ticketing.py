"""Tickets: a job that is fed carries one; taking it out again feeds the next."""

from __future__ import annotations

import pytest

from headway.contract.operate import Edit, Verb
from headway.contract.outcomes import Succeeded
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import use_of

REPO = Slots("repo:{url}", 1)
LINE = Slots("line", 2)
OFTEN = Rate("often:{phone}", 2, "2s")
A, B = use_of(REPO, url="a"), use_of(REPO, url="b")


class TicketGroup(ConformanceGroup):
    """No feed is lost, and no job that cannot start keeps another from it."""

    @pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.KILL, Verb.SUCCEED])
    async def test_head_taken_out_while_it_is_ticketed_feeds_the_next(
        self, rig: Rig, verb: Verb
    ) -> None:
        await rig.declare(REPO)
        jobs = await rig.add_many(3, gates=(A,))
        run = await rig.worker.take_one()
        await rig.worker.take(9)
        await rig.worker.settle(Succeeded(run.id, run.run))
        assert await rig.states(*jobs[1:]) == [State.WAITING, State.PARKED]
        await rig.act(verb, jobs[1].id)
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_ticketed_head_that_expires_feeds_the_next(self, rig: Rig) -> None:
        await rig.declare(REPO)
        holder = await rig.add(gates=(A,))
        await rig.add(gates=(A,), expires_at=rig.clock() + 4_000)
        last = await rig.add(gates=(A,))
        run = await rig.worker.take_one()
        await rig.worker.take(9)
        await rig.worker.settle(Succeeded(holder.id, run.run))
        rig.clock.advance(4_001)
        assert await rig.worker.take_ids(9) == [last.id]

    @pytest.mark.parametrize(
        "edit", [Edit(priority=900), Edit(due_at=2_000_000_000_000)], ids=["priority", "due"]
    )
    async def test_ticketed_head_that_is_edited_feeds_the_next(self, rig: Rig, edit: Edit) -> None:
        await rig.declare(REPO)
        jobs = await rig.add_many(3, gates=(A,))
        run = await rig.worker.take_one()
        await rig.worker.take(9)
        await rig.worker.settle(Succeeded(run.id, run.run))
        await rig.act(Verb.EDIT, jobs[1].id, edit=edit)
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_ticketed_head_that_parks_elsewhere_feeds_the_next(self, rig: Rig) -> None:
        await rig.declare(REPO)
        both = (A, B)
        holder_a = await rig.add(gates=(A,))
        holder_b = await rig.add(gates=(B,))
        stuck = await rig.add(gates=both)
        last = await rig.add(gates=(A,))
        run_a, run_b = await rig.worker.take(9)
        assert (run_a.id, run_b.id) == (holder_a.id, holder_b.id)
        await rig.worker.settle(Succeeded(run_a.id, run_a.run))
        assert await rig.worker.take_ids(9) == [last.id]
        assert (await rig.view(stuck.id)).parked_at == "repo:b"

    async def test_head_behind_a_ticket_is_fed_when_the_window_of_a_rate_ends(
        self, rig: Rig
    ) -> None:
        await rig.declare(LINE, OFTEN)
        often, worker = use_of(OFTEN, phone="1"), rig.new_worker()
        for _ in range(2):
            await rig.pass_time(1_000)
            await rig.add(gates=(often,))
            await worker.take_one()
        waiting = await rig.add_many(2, gates=(use_of(LINE), often))
        assert await worker.take() == []
        await rig.add_many(2, gates=(use_of(LINE),))
        holders = await worker.take(9)
        await rig.pass_time(1_000)
        assert await rig.states(*waiting) == [State.WAITING, State.PARKED]
        # The first has its ticket and waits for the line; the window's next start is the second's.
        await rig.pass_time(10_000)
        await worker.settle(*(Succeeded(run.id, run.run) for run in holders))
        assert await worker.take_ids(9) == [job.id for job in waiting]

    async def test_two_limits_that_alternate_lose_no_feed(self, rig: Rig) -> None:
        await rig.declare(REPO)
        jobs = [await rig.add(gates=gates) for gates in ((A, B), (A,), (B,), (B, A), (A,), (B,))]
        done: list[str] = []
        for _ in range(20):
            runs = await rig.worker.take(9)
            for run in runs:
                await rig.worker.settle(Succeeded(run.id, run.run))
                done.append(run.id)
        assert sorted(done) == sorted(job.id for job in jobs)

    async def test_lane_without_a_worker_holds_nobody_back_at_a_gate_it_shares(
        self, rig: Rig
    ) -> None:
        await rig.declare(REPO)
        await rig.add_many(3, gates=(A,), lane="unused", priority=1)
        jobs = await rig.add_many(3, gates=(A,))
        worker, other = rig.new_worker(), rig.new_worker()
        run = await worker.take_one()
        await other.take(9, "unused")
        for job in jobs[1:]:
            await worker.take(9)
            await worker.settle(Succeeded(run.id, run.run))
            (run,) = await worker.take(9)
            assert run.id == job.id

    async def test_every_member_of_a_pool_that_has_room_feeds_a_job(self, rig: Rig) -> None:
        lines = Pool("lines:{customer}", {"a": 1, "b": 1})
        await rig.declare(lines)
        jobs = await rig.add_many(5, gates=(use_of(lines, customer="x"),))
        runs = await rig.worker.take(9)
        assert [run.id for run in runs] == [job.id for job in jobs[:2]]
        # Both members are free before the next claim, which starts one job at each.
        await rig.worker.settle(*(Succeeded(run.id, run.run) for run in runs))
        assert await rig.worker.take_ids(9) == [job.id for job in jobs[2:4]]

    async def test_every_lane_at_a_gate_is_fed_and_one_of_them_starts(self, rig: Rig) -> None:
        await rig.declare(REPO)
        for lane in ("a", "b", "c"):
            await rig.add_many(2, gates=(A,), lane=lane)
        run = await rig.worker.take_one("a")
        for lane in ("a", "b", "c"):
            assert await rig.worker.take(9, lane) == []
        await rig.worker.settle(Succeeded(run.id, run.run))
        started = [len(await rig.worker.take(9, lane)) for lane in ("c", "b", "a")]
        assert started == [1, 0, 0]

    async def test_tickets_of_a_paused_lane_do_not_use_up_the_gate(self, rig: Rig) -> None:
        await rig.declare(REPO)
        for lane in ("paused", LANE):
            await rig.add_many(2, gates=(A,), lane=lane)
        run = await rig.worker.take_one()
        assert await rig.worker.take(9, "paused") == []
        assert await rig.worker.take(9) == []
        await rig.shut("lane:paused")
        await rig.worker.settle(Succeeded(run.id, run.run))
        assert await rig.worker.take(9, "paused") == []
        assert len(await rig.worker.take(9)) == 1
