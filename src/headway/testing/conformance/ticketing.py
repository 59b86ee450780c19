"""Tickets: to which parked jobs freed permits are offered, also if the first cannot use them."""

from __future__ import annotations

import pytest

from headway.contract.claims import Claimed
from headway.contract.operate import Edit, Verb
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.core.state import State
from headway.testing.conformance.parking import REPO, A, B, park_behind_one
from headway.testing.conformance.rig import ConformanceGroup, Rig
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import Keyed, keyed

LINE = Slots("line", 2)
OFTEN = Rate("often:{phone}", 2, "2s")
WIDE, LICENCE = Slots("wide", 4), Slots("licence:{name}", 4)
SIDE = "side"


def use(gate: GateSpec, amount: int) -> Keyed:
    """Return a use of a gate; `licence` has a single instance."""
    return keyed(gate, amount, name="cad") if gate is LICENCE else keyed(gate, amount)


async def hold_a_and_b(rig: Rig) -> list[Claimed]:
    """Return two runs that hold `repo:a` and `repo:b`."""
    await rig.declare(REPO)
    holders = [await rig.add(gates=(one,)) for one in (A, B)]
    runs = await rig.worker.take(9)
    assert [run.id for run in runs] == [job.id for job in holders]
    return runs


async def next_start(rig: Rig) -> Claimed:
    """Claim whenever the last claim says that there may be work, until a job starts."""
    for _ in range(20):
        reply = await rig.worker.ask()
        if reply.jobs:
            return reply.jobs[0]
        assert reply.next_at is not None
        rig.clock.jump_to(max(rig.clock(), reply.next_at))
    pytest.fail("nothing started in 20 claims")


class TicketGroup(ConformanceGroup):
    """No feed is lost, and no job that cannot start blocks another."""

    @pytest.mark.parametrize(
        ("verb", "edit"),
        [
            (Verb.CANCEL, Edit()),
            (Verb.KILL, Edit()),
            (Verb.SUCCEED, Edit()),
            (Verb.EDIT, Edit(priority=900)),
            (Verb.EDIT, Edit(due_at=2_000_000_000_000)),
        ],
        ids=["cancel", "kill", "succeed", "priority", "due"],
    )
    async def test_removed_or_edited_ticketed_head_feeds_the_next(
        self, rig: Rig, verb: Verb, edit: Edit
    ) -> None:
        run, jobs = await park_behind_one(rig, 3)
        await rig.worker.finish(run)
        assert await rig.states(*jobs[1:]) == [State.WAITING, State.PARKED]
        await rig.act(verb, jobs[1].id, edit=edit)
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_expired_ticketed_head_feeds_the_next(self, rig: Rig) -> None:
        await rig.add(gates=(A,))
        await rig.add(gates=(A,), expires_at=rig.clock() + 4_000)
        last = await rig.add(gates=(A,))
        run = await rig.worker.take_one()
        await rig.worker.take(9)
        await rig.worker.finish(run)
        rig.clock.advance(4_001)
        assert await rig.worker.take_ids(9) == [last.id]

    async def test_one_of_many_flows_starts_if_the_others_wait_for_something_else(
        self, rig: Rig
    ) -> None:
        run = await rig.start(gates=(A,))
        for n in range(30):
            await rig.add_many(2, gates=(A, keyed(LINE)), tenant=f"t{n}")
        jobs = await rig.add_many(2, gates=(A,))
        await rig.worker.take(99)
        await rig.close_gate("line")
        opened_at = rig.clock()
        for job in jobs:
            seen = (await rig.worker.ask(9)).seen
            async with rig.wakes(seen):
                await rig.worker.finish(run)
            run = await next_start(rig)
            assert run.id == job.id
        assert rig.clock() <= opened_at + 1_000

    async def test_ticketed_head_that_parks_elsewhere_feeds_the_next(self, rig: Rig) -> None:
        run_a, _ = await hold_a_and_b(rig)
        stuck = await rig.add(gates=(A, B))
        last = await rig.add(gates=(A,))
        assert await rig.worker.take(9) == []
        await rig.worker.finish(run_a)
        assert await rig.worker.take_ids(9) == [last.id]
        assert (await rig.view(stuck.id)).parked_at == "repo:b"

    async def test_jobs_behind_a_head_that_parks_elsewhere_follow_it_in_order(
        self, rig: Rig
    ) -> None:
        runs = await hold_a_and_b(rig)
        both = await rig.add_many(20, gates=(A, B), due_at=rig.clock())
        last = await rig.add(gates=(A,), due_at=rig.clock())
        assert await rig.worker.take(9) == []
        rig.clock.advance(4_000)
        await rig.worker.finish(runs[0])
        (run,) = await rig.worker.take(9)
        assert run.id == last.id
        assert [(await rig.view(job.id)).parked_at for job in both] == ["repo:b"] * 20
        rig.clock.advance(500)
        await rig.worker.finish(*(run, runs[1]))
        for job in both[:3]:
            (run,) = await rig.worker.take(9)
            assert run.id == job.id
            assert (await rig.view(job.id)).runs[0].blocked_ms == 4_500
            await rig.worker.finish(run)

    async def test_only_jobs_that_need_the_same_gate_follow_a_head(self, rig: Rig) -> None:
        runs = await hold_a_and_b(rig)
        stuck = await rig.add(gates=(A, B))
        passes = await rig.add(gates=(A,))
        behind = await rig.add(gates=(A, B))
        young = await rig.add(gates=(A, keyed(REPO, url="c")))
        assert await rig.worker.take(9) == []
        await rig.worker.finish(runs[0])
        (run,) = await rig.worker.take(9)
        assert run.id == passes.id
        places = [(await rig.view(job.id)).parked_at for job in (stuck, behind, young)]
        assert places == ["repo:b", "repo:a", "repo:a"]
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(9) == [young.id]

    async def test_new_job_starts_when_all_that_were_parked_before_it_followed_another(
        self, rig: Rig
    ) -> None:
        runs = await hold_a_and_b(rig)
        await rig.add_many(3, gates=(A, B))
        assert await rig.worker.take(9) == []
        await rig.worker.finish(runs[0])
        young = await rig.add(gates=(A,))
        assert await rig.worker.take_ids(9) == [young.id]

    async def test_new_job_that_comes_before_the_first_that_did_not_follow_starts(
        self, rig: Rig
    ) -> None:
        runs = await hold_a_and_b(rig)
        await rig.add_many(3, gates=(A, B))
        last = await rig.add(gates=(A,), priority=900)
        assert await rig.worker.take(9) == []
        await rig.worker.finish(runs[0])
        young = await rig.add(gates=(A,))
        plain = await rig.add()
        run, other = await rig.worker.take(9)
        assert [run.id, other.id] == [young.id, plain.id]
        await rig.worker.finish(run)
        assert await rig.worker.take_ids(9) == [last.id]

    async def test_job_that_comes_before_a_head_does_not_follow_it(self, rig: Rig) -> None:
        await rig.declare(REPO, LICENCE)
        await rig.add(gates=(A,))
        (run,) = await rig.worker.take(9)
        wide = await rig.add(gates=(use(LICENCE, 4), A))
        assert await rig.worker.take(9) == []
        await rig.add(gates=(use(LICENCE, 1),))
        await rig.worker.take_one()
        await rig.worker.finish(run)
        await rig.add(lane=SIDE, gates=(A,))
        side = await rig.worker.take_one(SIDE)
        first = await rig.add(priority=1, gates=(use(LICENCE, 1), A))
        plain = await rig.add(priority=2)
        # `first` is parked at `repo:a`, and `wide`, which has its ticket, is not examined.
        assert await rig.worker.take_ids(1) == [plain.id]
        assert await rig.worker.take(9) == []
        places = [(await rig.view(job.id)).parked_at for job in (wide, first)]
        assert places == ["licence:cad", "repo:a"]
        await rig.worker.finish(side)
        assert await rig.worker.take_ids(9) == [first.id]

    async def test_job_that_never_fits_a_gate_is_passed_after_it_followed_another(
        self, rig: Rig
    ) -> None:
        await rig.declare(REPO, LICENCE)
        await rig.cap("licence:cad", 2)
        holders = [await rig.add(gates=(one,)) for one in (A, use(LICENCE, 2))]
        stuck = await rig.add(gates=(A, use(LICENCE, 2)))
        never = await rig.add(gates=(A, use(LICENCE, 3)))
        small = await rig.add(gates=(A, use(LICENCE, 1)))
        runs = await rig.worker.take(9)
        assert [run.id for run in runs] == [job.id for job in holders]
        assert await rig.worker.take(9) == []
        await rig.worker.finish(runs[0])
        assert await rig.worker.take(9) == []
        await rig.act(Verb.CANCEL, stuck.id)
        await rig.worker.finish(runs[1])
        assert await rig.worker.take_ids(9) == [small.id]
        assert (await rig.view(never.id)).parked_at == "licence:cad"

    async def test_head_behind_a_ticket_is_fed_when_the_window_of_a_rate_ends(
        self, rig: Rig
    ) -> None:
        often, worker = keyed(OFTEN, phone="1"), rig.new_worker()
        for _ in range(2):
            await rig.pass_time(1_000)
            await rig.add(gates=(often,))
            await worker.take_one()
        waiting = await rig.add_many(2, gates=(LINE, often))
        assert await worker.take() == []
        await rig.add_many(2, gates=(LINE,))
        holders = await worker.take(9)
        await rig.pass_time(1_000)
        assert await rig.states(*waiting) == [State.WAITING, State.PARKED]
        # The first has a ticket and waits for `line`; the second gets the next start of the rate.
        await rig.pass_time(10_000)
        await worker.finish(*holders)
        assert await worker.take_ids(9) == [job.id for job in waiting]

    async def test_job_that_fits_again_goes_before_those_fed_behind_it(self, rig: Rig) -> None:
        await rig.declare(WIDE, LICENCE)
        await rig.cap("licence:cad", 2)
        await rig.add_many(2, gates=(use(LICENCE, 1),))
        run, _ = await rig.worker.take(9)
        big = await rig.add(gates=(use(LICENCE, 3),))
        small = await rig.add(gates=(use(LICENCE, 1),))
        assert await rig.worker.take(9) == []
        await rig.worker.finish(run)
        assert await rig.states(big, small) == [State.PARKED, State.WAITING]
        await rig.cap("licence:cad", 4)
        assert await rig.states(big, small) == [State.WAITING] * 2
        assert await rig.worker.take_ids(9) == [big.id]

    async def test_alternating_limits_lose_no_feed(self, rig: Rig) -> None:
        await rig.declare(REPO)
        jobs = [await rig.add(gates=gates) for gates in ((A, B), (A,), (B,), (B, A), (A,), (B,))]
        done: list[str] = []
        for _ in range(20):
            runs = await rig.worker.take(9)
            for run in runs:
                await rig.worker.finish(run)
                done.append(run.id)
        assert sorted(done) == sorted(job.id for job in jobs)

    async def test_lane_without_a_worker_holds_nobody_back_at_a_shared_gate(self, rig: Rig) -> None:
        await rig.declare(REPO)
        await rig.add_many(3, gates=(A,), lane="unused", priority=1)
        jobs = await rig.add_many(3, gates=(A,))
        worker, other = rig.new_worker(), rig.new_worker()
        run = await worker.take_one()
        await other.take(9, "unused")
        for job in jobs[1:]:
            await worker.take(9)
            await worker.finish(run)
            (run,) = await worker.take(9)
            assert run.id == job.id

    async def test_every_pool_member_with_room_feeds_a_job(self, rig: Rig) -> None:
        lines = Pool("lines:{customer}", {"a": 1, "b": 1})
        jobs = await rig.add_many(5, gates=(keyed(lines, customer="x"),))
        runs = await rig.worker.take(9)
        assert [run.id for run in runs] == [job.id for job in jobs[:2]]
        # Both members are free before the next claim, which starts a job at each.
        await rig.worker.finish(*runs)
        assert await rig.worker.take_ids(9) == [job.id for job in jobs[2:4]]

    async def test_every_lane_at_a_gate_is_fed_and_one_job_starts(self, rig: Rig) -> None:
        await rig.declare(REPO)
        for lane in ("a", "b", "c"):
            await rig.add_many(2, gates=(A,), lane=lane)
        run = await rig.worker.take_one("a")
        for lane in ("a", "b", "c"):
            assert await rig.worker.take(9, lane) == []
        await rig.worker.finish(run)
        started = [len(await rig.worker.take(9, lane)) for lane in ("c", "b", "a")]
        assert started == [1, 0, 0]

    async def test_tickets_of_a_paused_lane_do_not_use_up_the_gate(self, rig: Rig) -> None:
        await rig.declare(REPO)
        for lane in ("paused", LANE):
            await rig.add_many(2, gates=(A,), lane=lane)
        run = await rig.worker.take_one()
        assert await rig.worker.take(9, "paused") == []
        assert await rig.worker.take(9) == []
        await rig.close_gate("lane:paused")
        await rig.worker.finish(run)
        assert await rig.worker.take(9, "paused") == []
        assert len(await rig.worker.take(9)) == 1
