"""Edits of a queued job's place: its stage, its gates, and who is left to be asked."""

from __future__ import annotations

import pytest

from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import FoundUnfit, NextStage, Succeeded
from headway.core.cascade import Answer
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.gates.opening import Hours
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import FollowUp
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.played import policy_with
from headway.testing.conformance.rig import Rig, for_candidate
from headway.testing.jobs import use_of

LINE = Slots("line", 1)
DESK = Slots("desk", 1)
PHONE = Slots("phone:{phone}", 1)
SEAT = Slots(for_candidate("seat"), 1)
NIGHT = Hours("night:{tz}", "00:00-24:00", tz="{tz}")
ASKING = policy_with(
    cascade=True, on_final=FollowUp(kind="alarm", states=(State.DEAD, State.SUCCEEDED))
)


class EditGroup(ConformanceGroup):
    """What an edit moves."""

    async def test_edited_gates_move_a_waiting_job_to_the_flow_that_they_make(
        self, rig: Rig
    ) -> None:
        await rig.declare(LINE, DESK)
        await rig.add(gates=(use_of(LINE),))
        job = await rig.add(gates=(use_of(LINE),), stage="dial")
        await rig.worker.take(9)
        assert await rig.worker.take(9) == []
        edit = Edit(gates=(use_of(DESK),))
        assert await rig.act(Verb.EDIT, job.id, edit=edit) == [Acted.DONE]
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.WAITING, "dial", (use_of(DESK),))
        assert await rig.worker.take_ids(9) == [job.id]
        assert await rig.holders("desk") == [job.id]

    async def test_edited_stage_is_where_the_next_run_begins(self, rig: Rig) -> None:
        await rig.declare(LINE, PHONE)
        gates = (use_of(LINE), use_of(PHONE, phone="7"))
        job = await rig.add(stage="check")
        await rig.act(Verb.EDIT, job.id, edit=Edit(stage="dial", gates=gates))
        run = await rig.worker.take_one()
        assert (run.id, run.stage) == (job.id, "dial")
        assert (await rig.view(job.id)).gates == gates
        assert await rig.holders("phone:7") == [job.id]

    async def test_edited_stage_alone_leaves_the_gates(self, rig: Rig) -> None:
        await rig.declare(LINE, PHONE)
        gates = (use_of(LINE), use_of(PHONE, phone="7"))
        job = await rig.add(stage="check", gates=gates)
        await rig.act(Verb.EDIT, job.id, edit=Edit(stage="dial"))
        view = await rig.view(job.id)
        assert (view.stage, view.gates) == ("dial", gates)

    async def test_edited_job_keeps_its_place_among_others(self, rig: Rig) -> None:
        await rig.declare(DESK)
        first, second, third = await rig.add_many(3)
        other = await rig.add(gates=(use_of(DESK),), due_at=first.due_at)
        await rig.act(Verb.EDIT, other.id, edit=Edit(gates=()))
        assert await rig.worker.take_ids(9) == [first.id, other.id, second.id, third.id]

    async def test_parked_job_leaves_its_gate_and_the_next_one_is_fed(self, rig: Rig) -> None:
        await rig.declare(PHONE)
        use = use_of(PHONE, phone="7")
        holder, second, third = await rig.add_many(3, gates=(use,))
        assert await rig.worker.take_ids(9) == [holder.id]
        assert await rig.state(second.id) is State.PARKED
        rig.clock.advance(4_000)
        await rig.act(Verb.EDIT, second.id, edit=Edit(gates=()))
        rig.clock.advance(500)
        assert await rig.worker.take_ids(9) == [second.id]
        assert (await rig.view(second.id)).runs[0].blocked_ms == 4_000
        await rig.worker.say(Succeeded(holder.id, 1))
        assert await rig.worker.take_ids(9) == [third.id]

    async def test_fed_job_that_is_edited_hands_its_ticket_on(self, rig: Rig) -> None:
        await rig.declare(PHONE)
        use = use_of(PHONE, phone="7")
        holder, second, third = await rig.add_many(3, gates=(use,))
        await rig.worker.take(9)
        await rig.worker.say(Succeeded(holder.id, 1))
        assert await rig.states(second, third) == [State.WAITING, State.PARKED]
        await rig.act(Verb.EDIT, second.id, edit=Edit(gates=(), due_at=rig.clock() + 1_000))
        assert await rig.worker.take_ids(9) == [third.id]

    async def test_scheduled_job_is_edited_too(self, rig: Rig) -> None:
        await rig.declare(LINE)
        job = await rig.add(due_at=rig.clock() + 1_000)
        await rig.act(Verb.EDIT, job.id, edit=Edit(stage="dial", gates=(use_of(LINE),)))
        assert await rig.state(job.id) is State.SCHEDULED
        await rig.cap("line", 0)
        await rig.pass_time(1_000)
        assert await rig.worker.take(9) == []

    async def test_hours_that_an_edit_asks_for_first_are_known_at_once(self, rig: Rig) -> None:
        await rig.declare(NIGHT)
        job = await rig.add()
        use = use_of(NIGHT, zone="Europe/Berlin", tz="Europe/Berlin")
        await rig.act(Verb.EDIT, job.id, edit=Edit(gates=(use,)))
        assert await rig.worker.take_ids(9) == [job.id]

    async def test_gate_that_nothing_declares_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        job, dead = await rig.add(), await rig.add()
        await rig.act(Verb.KILL, dead.id)
        before = await rig.dump()
        edit = Edit(priority=1, stage="dial", gates=(GateUse(name="nowhere", template="nowhere"),))
        for verb, one in ((Verb.EDIT, job), (Verb.RETRY, dead)):
            with pytest.raises(UnknownGate):
                await rig.act(verb, one.id, edit=edit)
        assert await rig.dump() == before

    @pytest.mark.parametrize(
        "edit",
        [
            Edit(candidates=("a", "a")),
            Edit(candidates=("",)),
            Edit(stage="x\0"),
            Edit(gates=(use_of(LINE), use_of(LINE))),
        ],
        ids=["twice", "nameless", "stage", "gates"],
    )
    async def test_edit_that_no_job_can_take_is_refused(self, rig: Rig, edit: Edit) -> None:
        await rig.declare(LINE)
        job = await rig.add(candidates=("a",), policy=ASKING)
        async with rig.refuses(InvalidValue):
            await rig.act(Verb.EDIT, job.id, edit=edit)

    async def test_new_life_begins_at_the_stage_and_gates_given(self, rig: Rig) -> None:
        await rig.declare(LINE, DESK)
        job = await rig.add(stage="dial", gates=(use_of(LINE),))
        await rig.cap("line", 0)
        await rig.act(Verb.KILL, job.id)
        edit = Edit(stage="check", gates=(use_of(DESK),))
        assert await rig.act(Verb.RETRY, job.id, edit=edit) == [Acted.DONE]
        run = await rig.worker.take_one()
        assert (run.id, run.stage) == (job.id, "check")
        assert await rig.holders("desk") == [job.id]

    async def test_edited_candidates_take_the_place_of_those_left_and_the_asked_keep_their_record(
        self, rig: Rig
    ) -> None:
        await rig.declare(SEAT)
        job = await rig.add(candidates=("a", "b"), gates=(use_of(SEAT),), policy=ASKING)
        await rig.worker.take_and_say(FoundUnfit, reason="ill")
        assert await rig.act(Verb.EDIT, job.id, edit=Edit(candidates=("d", "a"))) == [Acted.DONE]
        cascade = await rig.cascade(job.id)
        assert cascade.left == ("d", "a")
        assert [(one.candidate, one.answer) for one in cascade.asked] == [("a", Answer.UNFIT)]
        run = await rig.worker.take_one()
        assert run.candidate == "d"

    async def test_turn_that_was_cut_short_is_not_repeated_where_its_candidate_is_left_out(
        self, rig: Rig
    ) -> None:
        await rig.declare(SEAT)
        job = await rig.add(candidates=("a", "b"), gates=(use_of(SEAT),), policy=ASKING)
        await rig.worker.take_and_say(NextStage, stage="two", gates=(use_of(SEAT),))
        await rig.act(Verb.EDIT, job.id, edit=Edit(candidates=("b", "c")))
        cascade = await rig.cascade(job.id)
        assert cascade.turn == ""
        assert (await rig.worker.take_one()).candidate == "b"

    async def test_parked_cascade_goes_to_a_new_candidate_who_is_free(self, rig: Rig) -> None:
        await rig.declare(SEAT)
        uses = (use_of(SEAT),)
        await rig.add(candidates=("a",), gates=uses, policy=ASKING, priority=1)
        job = await rig.add(candidates=("a",), gates=uses, policy=ASKING, priority=2)
        await rig.worker.take(9)
        assert await rig.state(job.id) is State.PARKED
        await rig.act(Verb.EDIT, job.id, edit=Edit(candidates=("a", "z")))
        run = await rig.worker.take_one()
        assert (run.id, run.candidate) == (job.id, "z")

    @pytest.mark.parametrize("verb", [Verb.EDIT, Verb.RETRY])
    async def test_cascade_with_nobody_left_is_exhausted_at_once_with_what_follows(
        self, rig: Rig, verb: Verb
    ) -> None:
        job = await rig.add(candidates=("a",), policy=ASKING)
        if verb is Verb.RETRY:
            await rig.cancel(job.id)
        assert await rig.act(verb, job.id, edit=Edit(candidates=())) == [Acted.DONE]
        view = await rig.view(job.id)
        assert (view.state, view.reason) == (State.DEAD, "exhausted")
        assert view.finished_at == rig.clock()
        assert [one.kind for one in (await rig.dump()).jobs].count("alarm") == 1
        assert await rig.worker.take_ids(9, "calls") == [
            one.id for one in (await rig.dump()).jobs if one.kind == "alarm"
        ]

    async def test_new_life_of_a_cascade_that_never_had_anybody_is_exhausted_again(
        self, rig: Rig
    ) -> None:
        job = await rig.add(candidates=(), policy=ASKING)
        await rig.act(Verb.RETRY, job.id)
        view = await rig.view(job.id)
        assert (view.state, view.reason, view.life) == (State.DEAD, "exhausted", 2)
        assert [one.kind for one in (await rig.dump()).jobs].count("alarm") == 2

    @pytest.mark.parametrize("verb", [Verb.EDIT, Verb.RETRY])
    async def test_candidates_of_a_job_that_is_no_cascade_are_refused_and_the_others_move(
        self, rig: Rig, verb: Verb
    ) -> None:
        plain, asking = await rig.add(), await rig.add(candidates=("a",), policy=ASKING)
        if verb is Verb.RETRY:
            await rig.cancel(plain.id, asking.id)
        edit = Edit(candidates=("b",), priority=9)
        answers = await rig.act(verb, plain.id, asking.id, edit=edit)
        assert answers == [Acted.REFUSED, Acted.DONE]
        assert (await rig.view(plain.id)).priority != 9
        assert (await rig.worker.take_one()).candidate == "b"
