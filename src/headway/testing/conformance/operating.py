"""An operator's moves: which apply in which state, what they change, and the trail."""

from __future__ import annotations

import pytest

from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import (
    Died,
    HandedOver,
    Released,
    Succeeded,
    Verdict,
)
from headway.core.errors import InvalidValue
from headway.core.gates.slots import Slots
from headway.core.job import MAX_PRIORITY
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.played import dial
from headway.testing.conformance.rig import AUTHOR, REASON, Rig
from headway.testing.jobs import use_of

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


async def in_state(rig: Rig, state: State) -> str:
    """The id of a new job that has come into a state."""
    worker = rig.new_worker()
    if state is State.SCHEDULED:
        return (await rig.add(due_at=rig.clock() + 9_000)).id
    if state is State.AWAITING:
        return (await dial(rig, key="call-of-state")).id
    if state is State.PARKED:
        await rig.declare(PHONE)
        for phone in ("1", "1"):
            job = await rig.add(gates=(use_of(PHONE, phone=phone),), lane="parked")
            await worker.take(1, "parked")
        return job.id
    job = await rig.add(lane="states")
    if state is State.CANCELLED:
        await rig.cancel(job.id)
    elif state is not State.WAITING:
        run = await worker.take_one("states")
        if state is State.SUCCEEDED:
            await worker.say(Succeeded(run.id, run.run))
        elif state is State.DEAD:
            await worker.say(Died(run.id, run.run))
    return job.id


class ActGroup(ConformanceGroup):
    """The other verbs, and which states they apply to."""

    @pytest.mark.parametrize("state", list(State))
    @pytest.mark.parametrize("verb", list(Verb))
    async def test_verb_applies_in_its_states_and_is_refused_in_the_others(
        self, rig: Rig, verb: Verb, state: State
    ) -> None:
        queued = {State.SCHEDULED, State.WAITING, State.PARKED}
        held = {State.RUNNING, State.AWAITING}
        applies = {
            Verb.CANCEL: queued | held,
            Verb.RETRY: {State.DEAD, State.CANCELLED},
            Verb.RUN_NOW: queued,
            Verb.EDIT: queued,
            Verb.SUCCEED: queued | held,
            Verb.KILL: queued | held,
        }
        job = await in_state(rig, state)
        assert await rig.state(job) is state
        before = await rig.view(job)
        (answer,) = await rig.act(verb, job, edit=Edit(priority=7))
        if state not in applies[verb]:
            assert answer is Acted.REFUSED
            after = await rig.view(job)
            assert (after.state, after.run, after.priority) == (state, before.run, before.priority)
        else:
            asked = verb is Verb.CANCEL and state in held
            assert answer is (Acted.ASKED if asked else Acted.DONE)

    async def test_answers_come_in_the_order_of_the_ids_and_know_unknown_ones(
        self, rig: Rig
    ) -> None:
        one, two = await rig.add(), await rig.add()
        await rig.cancel(one.id)
        answers = await rig.cancel(two.id, UNKNOWN_ID, one.id)
        assert answers == [Acted.DONE, Acted.UNKNOWN, Acted.REFUSED]

    async def test_repeated_request_changes_nothing_more_and_answers_the_same(
        self, rig: Rig
    ) -> None:
        job = await rig.add()
        assert await rig.act(Verb.KILL, job.id, request="once") == [Acted.DONE]
        assert await rig.act(Verb.RETRY, job.id, request="revive") == [Acted.DONE]
        before = await rig.dump()
        assert await rig.act(Verb.KILL, job.id, request="once") == [Acted.DONE]
        assert await rig.act(Verb.RETRY, job.id, request="revive") == [Acted.DONE]
        after = await rig.dump()
        assert after.jobs == before.jobs
        assert after.trail == before.trail

    @pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.RUN_NOW, Verb.EDIT, Verb.KILL])
    async def test_move_is_on_the_trail_with_who_when_and_why(self, rig: Rig, verb: Verb) -> None:
        job = await rig.add(due_at=rig.clock() + 9_000)
        rig.clock.advance(60)
        await rig.act(verb, job.id, edit=Edit(priority=4))
        (line,) = (await rig.view(job.id)).trail
        assert (line.at, line.author, line.reason) == (rig.clock(), AUTHOR, REASON)
        assert verb in line.what
        (move,) = (await rig.dump()).trail
        assert (move.at, move.author, move.reason) == (rig.clock(), AUTHOR, REASON)
        assert verb in move.verb

    async def test_edit_changes_priority_due_time_and_arguments(self, rig: Rig) -> None:
        job = await rig.add()
        due_at = rig.clock() + 4_000
        edit = Edit(priority=9, due_at=due_at, args=b'{"number":2}')
        assert await rig.act(Verb.EDIT, job.id, edit=edit) == [Acted.DONE]
        view = await rig.view(job.id)
        assert (view.priority, view.due_at, view.args) == (9, due_at, b'{"number":2}')
        assert view.state is State.SCHEDULED
        rig.clock.advance(4_000)
        run = await rig.worker.take_one()
        assert (run.priority, run.args) == (9, b'{"number":2}')

    async def test_edit_out_of_range_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        job = await rig.add()
        for edit in (Edit(priority=-1), Edit(priority=MAX_PRIORITY + 1)):
            with pytest.raises(InvalidValue):
                await rig.act(Verb.EDIT, job.id, edit=edit)
        assert (await rig.view(job.id)).priority == 300

    @pytest.mark.parametrize(
        ("verb", "state"), [(Verb.SUCCEED, State.SUCCEEDED), (Verb.KILL, State.DEAD)]
    )
    @pytest.mark.parametrize("awaiting", [False, True])
    async def test_settled_by_an_operator_gives_its_permits_back_and_ousts_its_run(
        self, rig: Rig, verb: Verb, state: State, *, awaiting: bool
    ) -> None:
        await rig.declare(LINE)
        job = await rig.add(gates=(use_of(LINE),))
        run = await rig.worker.take_one()
        if awaiting:
            await rig.worker.say(HandedOver(run.id, run.run, key="call-1", timeout_ms=9_000))
        assert await rig.act(verb, job.id) == [Acted.DONE]
        assert await rig.state(job.id) is state
        assert await rig.used("line") == 0
        assert (await rig.worker.beat(run)).lost == ((run.id, run.run),)
        assert await rig.worker.say(Released(run.id, run.run)) in {Verdict.LOST, Verdict.ALREADY}
        assert await rig.state(job.id) is state
