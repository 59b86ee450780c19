"""Reservations: for which job permits are kept, and for how long."""

from __future__ import annotations

import pytest

from headway.contract.claims import Claimed
from headway.contract.operate import Edit, Verb
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.core.gates.view import RESERVED_MS
from headway.core.job import NewJob
from headway.testing.conformance.rig import ConformanceGroup, Rig, for_candidate, policy_with
from headway.testing.conformance.ticketing import LICENCE, SIDE, WIDE, use
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import keyed

OTHER = Slots("other", 2)
LINES = Pool("lines", {"a": 4, "b": 2})
PACE = Rate("pace", 4, per="10s")
GATES = [WIDE, LICENCE, LINES, PACE]
LONG_MS = 100 * RESERVED_MS


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
        await self.worker.finish(run)
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
        await rig.worker.finish(*held[:2])
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
        await rig.worker.finish(held[0])
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
        await rig.worker.finish(held[0])
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
        await rig.worker.finish(held[0])
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
        await rig.worker.finish(held[0])
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
        await rig.worker.finish(held[0])
        big = await rig.add(kind="big", gates=(desks.take(2),))
        small = await rig.add(kind="small", gates=(desks,))
        (run,) = await rig.worker.take(9)
        assert (run.id, run.members["desks"]) == (small.id, "a")
        await rig.worker.finish(held[1])
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
        await worker.finish(*held)
        assert await other.take(9, SIDE) == []
        (run,) = await worker.take(9)
        assert run.id == first.id
        await worker.finish(run)
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
        await rig.worker.finish(held[0])
        assert await rig.worker.take_ids(9) == [big.id]
        gate = await rig.gate("wide")
        assert (gate.reserved, gate.reserved_for) == (0, None)
