"""Tickets and reservations: which job a freed permit is promised to, and for how long."""

from __future__ import annotations

import pytest

from headway.contract.claims import Claimed
from headway.contract.operate import Edit, Verb
from headway.contract.outcomes import Succeeded
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.core.gates.view import RESERVED_MS
from headway.core.job import NewJob
from headway.core.state import State
from headway.testing.conformance.parking import REPO, A, B, park_behind_one
from headway.testing.conformance.rig import ConformanceGroup, Rig, for_candidate, policy_with
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import Keyed, keyed

LINE = Slots("line", 2)
OFTEN = Rate("often:{phone}", 2, "2s")


async def hold_a_and_b(rig: Rig) -> list[Claimed]:
    """Return two runs that hold `repo:a` and `repo:b`."""
    await rig.declare(REPO)
    holders = [await rig.add(gates=(one,)) for one in (A, B)]
    runs = await rig.worker.take(9)
    assert [run.id for run in runs] == [job.id for job in holders]
    return runs


class TicketGroup(ConformanceGroup):
    """No feed is lost, and no job that cannot start blocks another."""

    @pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.KILL, Verb.SUCCEED])
    async def test_removed_ticketed_head_feeds_the_next(self, rig: Rig, verb: Verb) -> None:
        run, jobs = await park_behind_one(rig, 3)
        await rig.worker.settle(Succeeded(run.id, run.run))
        assert await rig.states(*jobs[1:]) == [State.WAITING, State.PARKED]
        await rig.act(verb, jobs[1].id)
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_expired_ticketed_head_feeds_the_next(self, rig: Rig) -> None:
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
    async def test_edited_ticketed_head_feeds_the_next(self, rig: Rig, edit: Edit) -> None:
        run, jobs = await park_behind_one(rig, 3)
        await rig.worker.settle(Succeeded(run.id, run.run))
        await rig.act(Verb.EDIT, jobs[1].id, edit=edit)
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_ticketed_head_that_parks_elsewhere_feeds_the_next(self, rig: Rig) -> None:
        run_a, _ = await hold_a_and_b(rig)
        stuck = await rig.add(gates=(A, B))
        last = await rig.add(gates=(A,))
        assert await rig.worker.take(9) == []
        await rig.worker.settle(Succeeded(run_a.id, run_a.run))
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
        await rig.worker.settle(Succeeded(runs[0].id, runs[0].run))
        (run,) = await rig.worker.take(9)
        assert run.id == last.id
        assert [(await rig.view(job.id)).parked_at for job in both] == ["repo:b"] * 20
        rig.clock.advance(500)
        await rig.worker.settle(*(Succeeded(one.id, one.run) for one in (run, runs[1])))
        for job in both[:3]:
            (run,) = await rig.worker.take(9)
            assert run.id == job.id
            assert (await rig.view(job.id)).runs[0].blocked_ms == 4_500
            await rig.worker.settle(Succeeded(run.id, run.run))

    async def test_only_jobs_that_need_the_same_gate_follow_a_head(self, rig: Rig) -> None:
        runs = await hold_a_and_b(rig)
        stuck = await rig.add(gates=(A, B))
        passes = await rig.add(gates=(A,))
        behind = await rig.add(gates=(A, B))
        young = await rig.add(gates=(A, keyed(REPO, url="c")))
        assert await rig.worker.take(9) == []
        await rig.worker.settle(Succeeded(runs[0].id, runs[0].run))
        (run,) = await rig.worker.take(9)
        assert run.id == passes.id
        places = [(await rig.view(job.id)).parked_at for job in (stuck, behind, young)]
        assert places == ["repo:b", "repo:a", "repo:a"]
        await rig.worker.settle(Succeeded(run.id, run.run))
        assert await rig.worker.take_ids(9) == [young.id]

    async def test_new_job_starts_when_all_that_were_parked_before_it_followed_another(
        self, rig: Rig
    ) -> None:
        runs = await hold_a_and_b(rig)
        await rig.add_many(3, gates=(A, B))
        assert await rig.worker.take(9) == []
        await rig.worker.settle(Succeeded(runs[0].id, runs[0].run))
        young = await rig.add(gates=(A,))
        assert await rig.worker.take_ids(9) == [young.id]

    async def test_new_job_that_comes_before_the_first_that_did_not_follow_starts(
        self, rig: Rig
    ) -> None:
        runs = await hold_a_and_b(rig)
        await rig.add_many(3, gates=(A, B))
        last = await rig.add(gates=(A,), priority=900)
        assert await rig.worker.take(9) == []
        await rig.worker.settle(Succeeded(runs[0].id, runs[0].run))
        young = await rig.add(gates=(A,))
        plain = await rig.add()
        run, other = await rig.worker.take(9)
        assert [run.id, other.id] == [young.id, plain.id]
        await rig.worker.settle(Succeeded(run.id, run.run))
        assert await rig.worker.take_ids(9) == [last.id]

    async def test_job_that_comes_before_a_head_does_not_follow_it(self, rig: Rig) -> None:
        await rig.declare(REPO, LICENCE)
        await rig.add(gates=(A,))
        (run,) = await rig.worker.take(9)
        wide = await rig.add(gates=(use(LICENCE, 4), A))
        assert await rig.worker.take(9) == []
        await rig.add(gates=(use(LICENCE, 1),))
        await rig.worker.take_one()
        await rig.worker.settle(Succeeded(run.id, run.run))
        await rig.add(lane=SIDE, gates=(A,))
        side = await rig.worker.take_one(SIDE)
        first = await rig.add(priority=1, gates=(use(LICENCE, 1), A))
        plain = await rig.add(priority=2)
        # `first` is parked at `repo:a`, and `wide`, which has its ticket, is not examined.
        assert await rig.worker.take_ids(1) == [plain.id]
        assert await rig.worker.take(9) == []
        places = [(await rig.view(job.id)).parked_at for job in (wide, first)]
        assert places == ["licence:cad", "repo:a"]
        await rig.worker.settle(Succeeded(side.id, side.run))
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
        await rig.worker.settle(Succeeded(runs[0].id, runs[0].run))
        assert await rig.worker.take(9) == []
        await rig.act(Verb.CANCEL, stuck.id)
        await rig.worker.settle(Succeeded(runs[1].id, runs[1].run))
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
        await worker.settle(*(Succeeded(run.id, run.run) for run in holders))
        assert await worker.take_ids(9) == [job.id for job in waiting]

    async def test_job_that_fits_again_goes_before_those_fed_behind_it(self, rig: Rig) -> None:
        await rig.declare(WIDE, LICENCE)
        await rig.cap("licence:cad", 2)
        await rig.add_many(2, gates=(use(LICENCE, 1),))
        run, _ = await rig.worker.take(9)
        big = await rig.add(gates=(use(LICENCE, 3),))
        small = await rig.add(gates=(use(LICENCE, 1),))
        assert await rig.worker.take(9) == []
        await rig.worker.report(Succeeded(run.id, run.run))
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
                await rig.worker.settle(Succeeded(run.id, run.run))
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
            await worker.settle(Succeeded(run.id, run.run))
            (run,) = await worker.take(9)
            assert run.id == job.id

    async def test_every_pool_member_with_room_feeds_a_job(self, rig: Rig) -> None:
        lines = Pool("lines:{customer}", {"a": 1, "b": 1})
        jobs = await rig.add_many(5, gates=(keyed(lines, customer="x"),))
        runs = await rig.worker.take(9)
        assert [run.id for run in runs] == [job.id for job in jobs[:2]]
        # Both members are free before the next claim, which starts a job at each.
        await rig.worker.settle(*(Succeeded(run.id, run.run) for run in runs))
        assert await rig.worker.take_ids(9) == [job.id for job in jobs[2:4]]

    async def test_every_lane_at_a_gate_is_fed_and_one_job_starts(self, rig: Rig) -> None:
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
        await rig.close_gate("lane:paused")
        await rig.worker.settle(Succeeded(run.id, run.run))
        assert await rig.worker.take(9, "paused") == []
        assert len(await rig.worker.take(9)) == 1


WIDE, OTHER = Slots("wide", 4), Slots("other", 2)
LICENCE = Slots("licence:{name}", 4)
LINES = Pool("lines", {"a": 4, "b": 2})
PACE = Rate("pace", 4, per="10s")
GATES = [WIDE, LICENCE, LINES, PACE]
SIDE = "side"
LONG_MS = 100 * RESERVED_MS


def use(gate: GateSpec, amount: int) -> Keyed:
    """Return a use of a gate; `licence` has a single instance."""
    return keyed(gate, amount, name="cad") if gate is LICENCE else keyed(gate, amount)


async def hold(rig: Rig, gate: GateSpec, count: int) -> list[Claimed]:
    """Start jobs that each hold one permit of a gate for a long time."""
    await rig.add_many(count, kind="held", gates=(use(gate, 1),))
    runs = await rig.worker.take(9, lease_ms=LONG_MS)
    assert len(runs) == count
    return runs


class _Stream:
    """A stream of jobs of another kind that need one permit each; each end adds a new job."""

    def __init__(self, rig: Rig, gate: GateSpec, lane: str = LANE) -> None:
        self.rig = rig
        self.gate = gate
        self.lane = lane
        self.worker = rig.new_worker()
        self.running: list[Claimed] = []

    async def begin(self) -> None:
        """Take all permits, with further jobs waiting."""
        await self.add(12)
        await self.claim()

    async def add(self, count: int) -> None:
        await self.rig.add_many(count, lane=self.lane, kind="small", gates=(use(self.gate, 1),))

    async def claim(self) -> list[Claimed]:
        runs = await self.worker.take(9, self.lane)
        self.running += [run for run in runs if run.kind == "small"]
        return runs

    async def end_one(self) -> None:
        """End the oldest run, and add a job."""
        run = self.running.pop(0)
        await self.worker.settle(Succeeded(run.id, run.run))
        await self.add(1)


async def rounds_until_start(rig: Rig, streams: list[_Stream], job: str) -> int:
    """Return how many rounds of ends and claims it takes until a job starts."""
    for number in range(1, 30):
        for stream in reversed(streams):
            await stream.end_one()
            if stream.gate is PACE:
                rig.clock.advance(2_500)
            for other in reversed(streams):
                if any(run.id == job for run in await other.claim()):
                    return number
    pytest.fail("the job never started")


class ReserveGroup(ConformanceGroup):
    """Freed permits are kept for the first job that waits for several."""

    @pytest.mark.parametrize("gate", GATES, ids=lambda gate: str(gate.kind))
    async def test_weighted_job_starts_beside_a_stream_of_smaller_ones(
        self, rig: Rig, gate: GateSpec
    ) -> None:
        stream = _Stream(rig, gate)
        await stream.begin()
        big = await rig.add(kind="big", priority=0, gates=(use(gate, 3),))
        await stream.add(3)
        assert await rounds_until_start(rig, [stream], big.id) <= 8

    @pytest.mark.parametrize("gate", GATES, ids=lambda gate: str(gate.kind))
    async def test_another_lane_that_always_claims_first_does_not_starve_it(
        self, rig: Rig, gate: GateSpec
    ) -> None:
        own, side = _Stream(rig, gate), _Stream(rig, gate, SIDE)
        await own.add(2)
        await own.claim()
        await side.begin()
        big = await rig.add(kind="big", priority=0, gates=(use(gate, 3),))
        assert big.id not in [run.id for run in await own.claim()]
        assert await rounds_until_start(rig, [own, side], big.id) <= 8

    async def test_surplus_permits_are_not_reserved(self, rig: Rig) -> None:
        six = Slots("six", 6)
        held = await hold(rig, six, 5)
        big = await rig.add(kind="big", priority=0, gates=(six.take(2),))
        small = await rig.add_many(3, kind="small", gates=(six,))
        assert await rig.worker.take(9) == []
        await rig.worker.settle(*(Succeeded(run.id, run.run) for run in held[:2]))
        assert await rig.worker.take_ids(9) == [big.id, small[0].id]

    async def test_earlier_job_takes_what_is_reserved(self, rig: Rig) -> None:
        await hold(rig, WIDE, 3)
        await rig.add(kind="big", priority=5, gates=(WIDE.take(3),))
        assert await rig.worker.take(9) == []
        urgent = await rig.add(kind="small", priority=1, gates=(WIDE,))
        await rig.add(kind="small", priority=9, gates=(WIDE,))
        assert await rig.worker.take_ids(9) == [urgent.id]

    @pytest.mark.parametrize("gate", [WIDE, LICENCE], ids=["shared", "keyed"])
    @pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.EDIT])
    async def test_reservation_ends_when_its_job_leaves(
        self, rig: Rig, gate: GateSpec, verb: Verb
    ) -> None:
        await hold(rig, gate, 3)
        big = await rig.add(kind="big", priority=0, gates=(use(gate, 3),))
        small = await rig.add(kind="small", lane=SIDE, gates=(use(gate, 1),))
        assert await rig.worker.take(9) == []
        reply = await rig.worker.ask(9, SIDE)
        assert reply.jobs == []
        edit = Edit(due_at=rig.clock() + 3_600_000) if verb is Verb.EDIT else Edit()
        await rig.act(verb, big.id, edit=edit)
        await rig.store.wait([SIDE], None, reply.seen)
        assert await rig.worker.take_ids(9, SIDE) == [small.id]

    async def test_reservation_at_a_candidates_gate_ends_when_its_job_leaves(
        self, rig: Rig
    ) -> None:
        crew, policy = Slots(for_candidate("crew"), 4), policy_with(cascade=True)

        async def add(amount: int, *, priority: int = 1, lane: str = LANE) -> NewJob:
            return await rig.add(
                candidates=("ann",),
                gates=(keyed(crew, amount),),
                policy=policy,
                priority=priority,
                lane=lane,
            )

        await rig.declare(crew)
        for _ in range(3):
            await add(1)
        assert len(await rig.worker.take(9, lease_ms=LONG_MS)) == 3
        big = await add(3, priority=0)
        small = await add(1, lane=SIDE)
        assert await rig.worker.take(9) == []
        assert (await rig.gate("crew:ann")).reserved_for == big.id
        assert await rig.worker.take(9, SIDE) == []
        await rig.cancel(big.id)
        assert await rig.worker.take_ids(9, SIDE) == [small.id]

    @pytest.mark.parametrize("gate", [WIDE, LICENCE], ids=["shared", "keyed"])
    async def test_reservation_stays_when_another_weighted_job_leaves(
        self, rig: Rig, gate: GateSpec
    ) -> None:
        await hold(rig, gate, 3)
        first = await rig.add(kind="big", priority=0, gates=(use(gate, 3),))
        second = await rig.add(kind="wide", priority=1, gates=(use(gate, 2),))
        await rig.add(kind="small", lane=SIDE, gates=(use(gate, 1),))
        assert await rig.worker.take(9) == []
        await rig.cancel(second.id)
        assert await rig.worker.take(9, SIDE) == []
        assert (await rig.gate(use(gate, 1).name)).reserved_for == first.id

    @pytest.mark.parametrize("gate", [WIDE, LICENCE], ids=["shared", "keyed"])
    async def test_reservation_expires_if_nobody_serves_its_lane(
        self, rig: Rig, gate: GateSpec
    ) -> None:
        held = await hold(rig, gate, 2)
        await rig.add(kind="big", priority=0, lane=SIDE, gates=(use(gate, 3),))
        assert await rig.worker.take(9, SIDE) == []
        small = await rig.add(kind="small", gates=(use(gate, 1),))
        reply = await rig.worker.ask(9)
        assert reply.jobs == []
        assert reply.next_at == rig.clock() + RESERVED_MS
        # Now the big job fits, but no worker claims in its lane.
        await rig.worker.settle(Succeeded(held[0].id, held[0].run))
        rig.clock.advance(RESERVED_MS - 1)
        assert await rig.worker.take(9) == []
        rig.clock.advance(RESERVED_MS + 1)
        assert await rig.worker.take_ids(9) == [small.id]

    async def test_claims_of_its_lane_renew_a_reservation(self, rig: Rig) -> None:
        held = await hold(rig, WIDE, 2)
        big = await rig.add(kind="big", priority=0, gates=(WIDE.take(3),))
        await rig.add(kind="small", lane=SIDE, gates=(WIDE,))
        for _ in range(4):
            reply = await rig.worker.ask(9)
            assert reply.jobs == []
            assert reply.next_at == rig.clock() + RESERVED_MS // 2
            assert await rig.worker.take(9, SIDE) == []
            rig.clock.advance(RESERVED_MS // 2)
        await rig.worker.settle(Succeeded(held[0].id, held[0].run))
        assert await rig.worker.take(9, SIDE) == []
        assert await rig.worker.take_ids(9) == [big.id]

    async def test_parked_job_keeps_its_reservation_without_claims_of_its_lane(
        self, rig: Rig
    ) -> None:
        held = await hold(rig, LICENCE, 2)
        big = await rig.add(kind="big", priority=0, gates=(use(LICENCE, 3),))
        assert await rig.worker.take(9) == []
        for _ in range(3):
            rig.clock.advance(RESERVED_MS + 1)
            await rig.add(kind="small", lane=SIDE, gates=(use(LICENCE, 1),))
            assert await rig.worker.take(9, SIDE) == []
        await rig.worker.settle(Succeeded(held[0].id, held[0].run))
        assert await rig.worker.take(9, SIDE) == []
        assert await rig.worker.take_ids(9) == [big.id]

    async def test_reservation_survives_a_temporary_closing_of_its_gate(self, rig: Rig) -> None:
        held = await hold(rig, LICENCE, 2)
        big = await rig.add(kind="big", priority=0, gates=(use(LICENCE, 3),))
        assert await rig.worker.take(9) == []
        await rig.close_gate(use(LICENCE, 1).name, rig.clock() + 5_000)
        await rig.pass_time(5_000)
        await rig.pass_time(RESERVED_MS)
        await rig.add(kind="small", lane=SIDE, gates=(use(LICENCE, 1),))
        assert await rig.worker.take(9, SIDE) == []
        await rig.worker.settle(Succeeded(held[0].id, held[0].run))
        assert await rig.worker.take_ids(9) == [big.id]

    @pytest.mark.parametrize("why", ["never", "closed", "other"])
    async def test_nothing_is_reserved_for_a_job_that_could_not_start_with_it(
        self, rig: Rig, why: str
    ) -> None:
        await rig.add_many(2, kind="held", gates=(WIDE, OTHER))
        await rig.worker.take(9)
        if why == "never":
            await rig.add(kind="big", priority=0, gates=(WIDE.take(5),))
        elif why == "closed":
            await rig.add(kind="big", tenant="beta", priority=0, gates=(WIDE.take(3),))
            await rig.close_gate("tenant:beta")
        else:
            await rig.add(kind="big", priority=0, gates=(WIDE.take(3), OTHER))
        small = await rig.add_many(3, kind="small", gates=(WIDE,))
        assert await rig.worker.take_ids(9) == [small[0].id, small[1].id]

    @pytest.mark.parametrize("gate", [WIDE, LICENCE], ids=["shared", "keyed"])
    async def test_nothing_is_reserved_at_a_closed_gate(self, rig: Rig, gate: GateSpec) -> None:
        await rig.declare(gate)
        name = use(gate, 3).name
        await rig.close_gate(name)
        await rig.add(kind="big", gates=(use(gate, 3),))
        reply = await rig.worker.ask(9)
        assert (reply.jobs, reply.next_at) == ([], None)
        state = await rig.gate(name)
        assert (state.reserved, state.reserved_for) == (0, None)

    async def test_member_that_never_fits_the_job_is_not_reserved_for_it(self, rig: Rig) -> None:
        desks = Pool("desks", {"a": 1, "b": 2})
        held = await hold(rig, desks, 2)
        assert [run.members["desks"] for run in held] == ["a", "b"]
        await rig.worker.report(Succeeded(held[0].id, held[0].run))
        big = await rig.add(kind="big", gates=(desks.take(2),))
        small = await rig.add(kind="small", gates=(desks,))
        (run,) = await rig.worker.take(9)
        assert (run.id, run.members["desks"]) == (small.id, "a")
        await rig.worker.report(Succeeded(held[1].id, held[1].run))
        assert await rig.worker.take_ids(9) == [big.id]

    async def test_two_jobs_that_need_each_others_reservation_start_in_turn(self, rig: Rig) -> None:
        one, two = Slots("one", 3), Slots("two", 3)
        await rig.add_many(2, kind="held", gates=(one, two))
        worker, other = rig.new_worker(), rig.new_worker()
        held = await worker.take(9)
        both = (keyed(one, 2), keyed(two, 2))
        first = await rig.add(kind="big", gates=both)
        second = await rig.add(kind="wide", lane=SIDE, gates=both[::-1])
        for asked, lane in ((other, SIDE), (worker, LANE), (other, SIDE)):
            assert await asked.take(9, lane) == []
        await worker.settle(*(Succeeded(run.id, run.run) for run in held))
        assert await other.take(9, SIDE) == []
        (run,) = await worker.take(9)
        assert run.id == first.id
        await worker.settle(Succeeded(run.id, run.run))
        assert await other.take_ids(9, SIDE) == [second.id]

    async def test_why_and_the_gate_show_for_whom_it_is_reserved(self, rig: Rig) -> None:
        held = await hold(rig, WIDE, 2)
        big = await rig.add(kind="big", priority=0, gates=(WIDE.take(3),))
        small = await rig.add(kind="small", gates=(WIDE,))
        assert await rig.worker.take(9) == []
        gate = await rig.gate("wide")
        assert (gate.free, gate.reserved, gate.reserved_for) == (2, 3, big.id)
        of_big, of_small = await rig.why(big.id), await rig.why(small.id)
        kept = "slots wide has too little room for 3 (2 of 4), what becomes free is kept for this"
        assert kept in of_big.sentence
        assert f"(2 of 4), 3 are kept for {big.id}" in of_small.sentence
        assert of_small.shown == "blocked"
        await rig.worker.settle(Succeeded(held[0].id, held[0].run))
        assert await rig.worker.take_ids(9) == [big.id]
        gate = await rig.gate("wide")
        assert (gate.reserved, gate.reserved_for) == (0, None)
