"""Restore: jobs whose work is already under way somewhere, with the permits that it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.contract.enqueue import InFlight
from headway.contract.operate import Edit, Verb
from headway.contract.outcomes import HandedOver
from headway.contract.signals import Decided, Heard
from headway.core.errors import KeyConflict, UnknownGate
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.job import FollowUp, NewJob
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.played import policy_with
from headway.testing.conformance.rig import Rig
from headway.testing.jobs import use_of

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)
NUMBERS = Pool("numbers", {"a": 1, "b": 1})
TWILIO = Rate("rate:twilio", 1, "10s")


def under_way(rig: Rig, job: NewJob, key: str, **members: str) -> InFlight:
    """A job whose work began a minute ago and has ten more."""
    return InFlight(
        job=job,
        signal_key=key,
        since_at=rig.clock() - 60_000,
        deadline_ms=600_000,
        members=members,
    )


class RestoreGroup(ConformanceGroup):
    """Facts of the outside world, taken over as they are."""

    async def test_restored_job_awaits_in_doubt_with_its_permits(self, rig: Rig) -> None:
        await rig.declare(LINE, NUMBERS, PHONE)
        gates = (use_of(LINE), use_of(NUMBERS), use_of(PHONE, phone="1"))
        job = rig.jobs.make(gates=gates)
        reply = await rig.store.restore([under_way(rig, job, "call-1", numbers="b")])
        assert reply == [(job.id, True)]
        view = await rig.view(job.id)
        assert (view.state, view.in_doubt) == (State.AWAITING, True)
        assert view.deadline_at == rig.clock() + 600_000
        assert await rig.holders("line") == [job.id]
        assert await rig.holders("phone:1") == [job.id]
        members = {one.name: one.used for one in (await rig.gate("numbers")).members}
        assert members == {"numbers/a": 0, "numbers/b": 1}

    @pytest.mark.parametrize("ahead_ms", [-60_000, 0, 7_000])
    async def test_restored_job_was_created_before_its_run_began(
        self, rig: Rig, ahead_ms: int
    ) -> None:
        began_at = rig.clock() + ahead_ms
        job = rig.jobs.make()
        flight = replace(under_way(rig, job, "call-1"), since_at=began_at)
        await rig.store.restore([flight])
        view = await rig.view(job.id)
        assert view.created_at == min(rig.clock(), began_at)
        assert view.runs[0].claimed_at == began_at

    async def test_job_that_was_queued_here_is_never_taken_up_before_it_was_created(
        self, rig: Rig
    ) -> None:
        job = await rig.add()
        created_at = rig.clock()
        flight = replace(under_way(rig, job, "call-1"), newer=True)
        await rig.store.restore([flight])
        view = await rig.view(job.id)
        assert view.state is State.AWAITING
        assert view.created_at == view.runs[0].claimed_at == created_at

    async def test_restored_job_is_never_dispatched(self, rig: Rig) -> None:
        job = rig.jobs.make()
        await rig.store.restore([under_way(rig, job, "call-1")])
        await rig.pass_time(500_000)
        assert await rig.worker.take(5) == []

    async def test_restored_job_ends_by_its_signal_and_gives_its_permits_back(
        self, rig: Rig
    ) -> None:
        await rig.declare(LINE)
        job = rig.jobs.make(gates=(use_of(LINE),))
        waiting = await rig.add(gates=(use_of(LINE),))
        await rig.store.restore([under_way(rig, job, "call-1")])
        assert await rig.worker.take(5) == []
        assert (await rig.tell("call-1")).answer is Heard.APPLIED
        assert await rig.state(job.id) is State.SUCCEEDED
        assert await rig.worker.take_ids(5) == [waiting.id]

    async def test_permits_of_what_is_under_way_are_taken_even_above_the_capacity(
        self, rig: Rig
    ) -> None:
        await rig.declare(LINE)
        jobs = rig.jobs.many(3, gates=(use_of(LINE),))
        flights = [under_way(rig, job, f"call-{n}") for n, job in enumerate(jobs)]
        await rig.store.restore(flights)
        gate = await rig.gate("line")
        assert (gate.used, gate.free, gate.open) == (3, 0, False)
        await rig.check()
        await rig.tell("call-0")
        await rig.tell("call-1")
        later = await rig.add(gates=(use_of(LINE),))
        assert await rig.worker.take(5) == []
        await rig.tell("call-2")
        assert await rig.worker.take_ids(5) == [later.id]

    async def test_restore_again_by_key_makes_no_second_job(self, rig: Rig) -> None:
        job = rig.jobs.make()
        await rig.store.restore([under_way(rig, job, "call-1")])
        again = replace(job, id=rig.jobs.make().id)
        reply = await rig.store.restore([under_way(rig, again, "call-1")])
        assert reply == [(job.id, False)]
        assert await rig.missing(again.id)

    async def test_restore_of_a_job_that_is_queued_leaves_it_as_it_is(self, rig: Rig) -> None:
        job = await rig.add()
        again = replace(job, id=rig.jobs.make().id)
        reply = await rig.store.restore([under_way(rig, again, "call-1")])
        assert reply == [(job.id, False)]
        assert await rig.state(job.id) is State.WAITING

    async def test_restore_of_a_known_id_leaves_a_job_that_was_edited_as_it_is(
        self, rig: Rig
    ) -> None:
        job = await rig.add()
        await rig.act(Verb.EDIT, job.id, edit=Edit(args=b'{"edited":1}'))
        flight = under_way(rig, replace(job, args=b'{"edited":1}'), "call-1")
        assert await rig.store.restore([flight]) == [(job.id, False)]
        assert await rig.state(job.id) is State.WAITING

    async def test_restored_job_goes_on_counting_from_the_run_that_it_was(self, rig: Rig) -> None:
        await rig.declare(LINE)
        job = rig.jobs.make(gates=(use_of(LINE),), policy=policy_with(on_deadline="retry"))
        await rig.store.restore([under_way(rig, job, f"{job.id}:7")])
        assert (await rig.view(job.id)).run == 7
        assert (await rig.tell(f"{job.id}:6")).answer is not Heard.APPLIED
        await rig.tell(f"{job.id}:7", Decided.RETRY)
        await rig.pass_time(3_600_000)
        again = await rig.worker.take_one()
        assert (again.run, again.attempt) == (8, 2)
        await rig.check()

    @pytest.mark.parametrize("state", ["scheduled", "waiting", "parked", "running", "awaiting"])
    async def test_what_an_older_store_has_of_a_job_under_way_is_taken_up(
        self, rig: Rig, state: str
    ) -> None:
        await rig.declare(LINE, PHONE)
        before, line = (use_of(PHONE, phone="1"),), (use_of(LINE),)
        if state == "parked":
            blocker = await rig.add(gates=before)
            assert await rig.new_worker().take_ids(1) == [blocker.id]
        due_at = rig.clock() + 9_000 if state == "scheduled" else None
        job = await rig.add(gates=before, stage="check", due_at=due_at)
        if state in {"running", "awaiting"}:
            taken = await rig.worker.take_one()
            if state == "awaiting":
                await rig.worker.say(HandedOver(taken.id, taken.run, key="call-1"))
        if state == "parked":
            assert await rig.worker.take(5) == []
        assert await rig.state(job.id) is State(state)
        now = replace(job, stage="dial", gates=line, args=b'{"now":1}')
        flight = replace(under_way(rig, now, f"{job.id}:5"), newer=True)
        assert await rig.store.restore([flight, flight]) == [(job.id, False)] * 2
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.run) == (State.AWAITING, "dial", 5)
        assert await rig.holders("line") == [job.id]
        assert job.id not in await rig.holders("phone:1")
        await rig.check()
        assert await rig.store.restore([flight]) == [(job.id, False)]
        assert (await rig.view(job.id)).run == 5
        assert (await rig.tell(f"{job.id}:5")).answer is Heard.APPLIED
        assert await rig.state(job.id) is State.SUCCEEDED
        assert await rig.holders("line") == []
        await rig.check()

    async def test_restore_is_all_or_none(self, rig: Rig) -> None:
        job = rig.jobs.make()
        bad = rig.jobs.make(gates=(use_of(LINE),))
        with pytest.raises(UnknownGate):
            await rig.store.restore([under_way(rig, job, "1"), under_way(rig, bad, "2")])
        clash = replace(job, id=rig.jobs.make().id, args=b"[]")
        with pytest.raises(KeyConflict):
            await rig.store.restore([under_way(rig, job, "1"), under_way(rig, clash, "2")])
        assert await rig.missing(job.id)

    async def test_restored_job_goes_by_its_deadline(self, rig: Rig) -> None:
        one = rig.jobs.make()
        two = rig.jobs.make(policy=policy_with(on_deadline="retry"))
        await rig.store.restore([under_way(rig, one, "1"), under_way(rig, two, "2")])
        await rig.pass_time(599_999)
        assert await rig.states(one, two) == [State.AWAITING] * 2
        await rig.pass_time(1)
        assert await rig.states(one, two) == [State.DEAD, State.SCHEDULED]

    async def test_restored_job_has_its_provider_asked(self, rig: Rig) -> None:
        job = rig.jobs.make(policy=policy_with(reconcile="ask"))
        await rig.store.restore([under_way(rig, job, "call-1")])
        await rig.pass_time(1)
        kinds = [one.kind for one in (await rig.dump()).jobs]
        assert kinds.count("ask") == 1

    async def test_early_signal_settles_a_job_as_it_is_restored(self, rig: Rig) -> None:
        assert (await rig.tell("call-1")).answer is Heard.KEPT
        job = rig.jobs.make()
        await rig.store.restore([under_way(rig, job, "call-1")])
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_cascade_without_candidates_is_over_as_it_is_restored(self, rig: Rig) -> None:
        policy = policy_with(cascade=True, on_final=FollowUp(kind="tell", states=(State.DEAD,)))
        job = rig.jobs.make(policy=policy)
        await rig.store.restore([under_way(rig, job, "call-1")])
        view = await rig.view(job.id)
        assert (view.state, view.reason) == (State.DEAD, "exhausted")
        assert [one.kind for one in (await rig.dump()).jobs].count("tell") == 1
