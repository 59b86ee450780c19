"""Changes to a queued job's place: by its run, a signal or an operator."""

from __future__ import annotations

import pytest

from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import (
    Failed,
    FoundUnfit,
    HandedOver,
    KnownAs,
    NextStage,
    Outcome,
    Returned,
    Succeeded,
    Verdict,
)
from headway.contract.signals import Decided, Signal, SignalKind, SignalResult
from headway.core.cascade import Answer
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.gates.opening import Hours
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import DEFAULT_POLICY, FollowUp, NewJob
from headway.core.state import State
from headway.testing.conformance.rig import (
    ConformanceGroup,
    Rig,
    SignalFields,
    for_candidate,
    policy_with,
)
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.jobs import use_of

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)
ROOM = Slots("room:{room}", 1)
OPEN = Hours("open:{tz}", "00:00-24:00", tz="{tz}")
CHECK = (use_of(PHONE, phone="check"),)
DIAL = (use_of(LINE), use_of(PHONE, phone="7"))
ALWAYS = (use_of(OPEN, zone="Asia/Tokyo", tz="Asia/Tokyo"),)
NOWHERE = (GateUse(name="nowhere", template="nowhere"),)


async def dialled(rig: Rig, worker: PlayedWorker) -> NewJob:
    """Start a job at its stage `dial`."""
    await rig.declare(LINE, PHONE, OPEN)
    job = await rig.add(stage="dial", gates=DIAL)
    await worker.take_one()
    return job


class StageGroup(ConformanceGroup):
    """A next attempt at another stage."""

    async def test_failed_run_can_set_the_stage_of_its_retry(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.cap("line", 0)
        failed = Failed(job.id, 1, error="busy", after_ms=0, stage="check", gates=CHECK)
        assert await rig.worker.report(failed) is Verdict.DONE
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.WAITING, "check", CHECK)
        assert view.runs[0].stage == "dial"
        run = await rig.worker.take_one()
        assert (run.id, run.stage, run.attempt) == (job.id, "check", 2)
        assert await rig.holders("phone:check") == [job.id]

    async def test_failed_run_with_the_policys_delay_can_set_its_stage(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.report(Failed(job.id, 1, error="busy", stage="check", gates=()))
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.SCHEDULED, "check", ())

    async def test_failed_run_without_a_stage_keeps_its_stage(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.report(Failed(job.id, 1, after_ms=0))
        view = await rig.view(job.id)
        assert (view.stage, view.gates) == ("dial", DIAL)

    async def test_exhausted_attempts_end_the_job_at_its_own_stage(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        for run in (1, 2, 3):
            last = Failed(job.id, run, after_ms=0, stage="check" if run == 3 else "")
            await rig.worker.report(last)
            await rig.worker.take(9)
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.DEAD, "dial", DIAL)

    async def test_failed_run_with_a_cancel_request_ends_cancelled_at_its_own_stage(
        self, rig: Rig
    ) -> None:
        job = await dialled(rig, rig.worker)
        await rig.cancel(job.id)
        failed = Failed(job.id, 1, after_ms=0, stage="check", gates=CHECK)
        assert await rig.worker.report(failed) is Verdict.CANCELLED
        assert (await rig.view(job.id)).stage == "dial"

    async def test_stage_with_unknown_gates_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        async with rig.refuses(UnknownGate):
            await rig.worker.report(Failed(job.id, 1, after_ms=0, stage="check", gates=NOWHERE))
        async with rig.refuses(InvalidValue):
            await rig.worker.report(Failed(job.id, 1, after_ms=0, gates=CHECK))

    async def test_refused_stage_undoes_the_whole_outcome(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        run = await rig.start(policy=DEFAULT_POLICY, key=None)
        async with rig.refuses(UnknownGate):
            await rig.worker.settle(
                Succeeded(run.id, 1), Failed(job.id, 1, stage="check", gates=NOWHERE)
            )

    async def test_hours_of_the_new_stage_are_known_at_once(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.report(Failed(job.id, 1, after_ms=0, stage="check", gates=ALWAYS))
        assert await rig.worker.take_ids(9) == [job.id]

    @pytest.mark.parametrize("after_ms", [None, 0, 5_000])
    async def test_retry_signal_can_set_the_stage(self, rig: Rig, after_ms: int | None) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.settle(
            HandedOver(job.id, 1, key="sid", timeout_ms=60_000), Returned(job.id, 1)
        )
        again = SignalFields(after_ms=after_ms, stage="check", gates=CHECK)
        assert (await rig.signal("sid", Decided.RETRY, **again)).answer is SignalResult.APPLIED
        view = await rig.view(job.id)
        assert (view.stage, view.gates) == ("check", CHECK)
        assert (view.state, await rig.used("line")) == (
            State.WAITING if after_ms == 0 else State.SCHEDULED, 0,
        )  # fmt: skip
        await rig.pass_time(1_000_000)
        assert (await rig.worker.take_one()).stage == "check"

    @pytest.mark.parametrize("gates", [CHECK, ALWAYS], ids=["slots", "hours"])
    @pytest.mark.parametrize("known", [True, False], ids=["at hand-over", "known later"])
    async def test_kept_signal_keeps_its_stage(
        self, rig: Rig, gates: tuple[GateUse, ...], known: bool
    ) -> None:
        job = await dialled(rig, rig.worker)
        key = f"{job.id}:1" if known else "sid"
        again = SignalFields(after_ms=0, stage="check", gates=gates)
        assert (await rig.signal(key, Decided.RETRY, **again)).answer is SignalResult.KEPT
        await rig.worker.report(HandedOver(job.id, 1, key=f"{job.id}:1", timeout_ms=60_000))
        if not known:
            await rig.worker.report(KnownAs(job.id, 1, key="sid"))
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.WAITING, "check", gates)
        assert (await rig.worker.take_one()).stage == "check"

    @pytest.mark.parametrize("key", ["sid", "own"], ids=["at hand-over", "known later"])
    async def test_kept_signal_whose_stage_became_invalid_is_refused_and_stays_kept(
        self, rig: Rig, key: str
    ) -> None:
        job = await dialled(rig, rig.worker)
        await rig.declare(ROOM)
        again = SignalFields(stage="check", gates=(use_of(ROOM, room="1"),))
        await rig.signal("sid", Decided.RETRY, event="again", **again)
        outcome: Outcome = HandedOver(job.id, 1, key=key, timeout_ms=60_000)
        if key != "sid":
            await rig.worker.report(outcome)
            outcome = KnownAs(job.id, 1, key="sid")
        # From now on, the stage's gate has the name of another one.
        await rig.declare(Rate("room:1", 1, "1h"))
        async with rig.refuses(InvalidValue):
            await rig.worker.report(outcome)
        assert (await rig.signal("sid", event="again")).answer is SignalResult.KEPT

    @pytest.mark.parametrize("key", ["unknown", "its own"])
    async def test_signal_to_keep_with_unknown_gates_is_refused(self, rig: Rig, key: str) -> None:
        job = await dialled(rig, rig.worker)
        key = f"{job.id}:1" if key == "its own" else key
        async with rig.refuses(UnknownGate):
            await rig.signal(key, Decided.RETRY, stage="check", gates=NOWHERE)

    @pytest.mark.parametrize(
        "signal",
        [
            Signal(key="k", event="e", decided=Decided.DEAD, stage="check"),
            Signal(key="k", event="e", kind=SignalKind.PROGRESS, stage="check"),
            Signal(key="k", event="e", decided=Decided.RETRY, gates=CHECK),
        ],
        ids=["dead", "progress", "no stage"],
    )
    async def test_stage_without_a_new_attempt_is_refused(self, rig: Rig, signal: Signal) -> None:
        with pytest.raises(InvalidValue):
            await rig.store.signal(signal)

    async def test_next_stage_with_new_hours_starts_at_once(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.report(NextStage(job.id, 1, stage="late", gates=ALWAYS))
        run = await rig.worker.take_one()
        assert (run.id, run.stage, run.attempt) == (job.id, "late", 1)


DESK = Slots("desk", 1)
SEAT = Slots(for_candidate("seat"), 1)
NIGHT = Hours("night:{tz}", "00:00-24:00", tz="{tz}")
ASKING = policy_with(
    cascade=True, on_final=FollowUp(kind="alarm", states=(State.DEAD, State.SUCCEEDED))
)


class EditGroup(ConformanceGroup):
    """What an edit changes."""

    async def test_edited_gates_move_a_waiting_job_to_another_flow(self, rig: Rig) -> None:
        await rig.declare(DESK)
        await rig.add(gates=(LINE,))
        job = await rig.add(gates=(LINE,), stage="dial")
        await rig.worker.take(9)
        assert await rig.worker.take(9) == []
        edit = Edit(gates=(use_of(DESK),))
        assert await rig.act(Verb.EDIT, job.id, edit=edit) == [Acted.DONE]
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.WAITING, "dial", (use_of(DESK),))
        assert await rig.worker.take_ids(9) == [job.id]
        assert await rig.holders("desk") == [job.id]

    @pytest.mark.parametrize(
        ("before", "edited"), [((), DIAL), (DIAL, None)], ids=["new gates", "kept gates"]
    )
    async def test_edited_stage_applies_to_the_next_run(
        self, rig: Rig, before: tuple[GateUse, ...], edited: tuple[GateUse, ...] | None
    ) -> None:
        await rig.declare(LINE, PHONE)
        job = await rig.add(stage="check", gates=before)
        await rig.act(Verb.EDIT, job.id, edit=Edit(stage="dial", gates=edited))
        run = await rig.worker.take_one()
        assert (run.id, run.stage) == (job.id, "dial")
        assert (await rig.view(job.id)).gates == DIAL
        assert await rig.holders("phone:7") == [job.id]

    async def test_edited_job_keeps_its_place_in_the_order(self, rig: Rig) -> None:
        first, second, third = await rig.add_many(3)
        other = await rig.add(gates=(DESK,), due_at=first.due_at)
        await rig.act(Verb.EDIT, other.id, edit=Edit(gates=()))
        assert await rig.worker.take_ids(9) == [first.id, other.id, second.id, third.id]

    async def test_edited_parked_job_leaves_its_gate_and_the_next_is_fed(self, rig: Rig) -> None:
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
        await rig.worker.report(Succeeded(holder.id, 1))
        assert await rig.worker.take_ids(9) == [third.id]

    async def test_edited_fed_job_passes_its_ticket_on(self, rig: Rig) -> None:
        await rig.declare(PHONE)
        use = use_of(PHONE, phone="7")
        holder, second, third = await rig.add_many(3, gates=(use,))
        await rig.worker.take(9)
        await rig.worker.report(Succeeded(holder.id, 1))
        assert await rig.states(second, third) == [State.WAITING, State.PARKED]
        await rig.act(Verb.EDIT, second.id, edit=Edit(gates=(), due_at=rig.clock() + 1_000))
        assert await rig.worker.take_ids(9) == [third.id]

    async def test_scheduled_job_can_be_edited(self, rig: Rig) -> None:
        await rig.declare(LINE)
        job = await rig.add(due_at=rig.clock() + 1_000)
        await rig.act(Verb.EDIT, job.id, edit=Edit(stage="dial", gates=(use_of(LINE),)))
        assert await rig.state(job.id) is State.SCHEDULED
        await rig.cap("line", 0)
        await rig.pass_time(1_000)
        assert await rig.worker.take(9) == []

    async def test_hours_first_used_by_an_edit_are_known_at_once(self, rig: Rig) -> None:
        await rig.declare(NIGHT)
        job = await rig.add()
        use = use_of(NIGHT, zone="Europe/Berlin", tz="Europe/Berlin")
        await rig.act(Verb.EDIT, job.id, edit=Edit(gates=(use,)))
        assert await rig.worker.take_ids(9) == [job.id]

    async def test_edit_to_an_undeclared_gate_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        job, dead = await rig.add(), await rig.add()
        await rig.act(Verb.KILL, dead.id)
        edit = Edit(priority=1, stage="dial", gates=NOWHERE)
        for verb, one in ((Verb.EDIT, job), (Verb.RETRY, dead)):
            async with rig.refuses(UnknownGate):
                await rig.act(verb, one.id, edit=edit)

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
    async def test_edit_that_applies_to_no_job_is_refused(self, rig: Rig, edit: Edit) -> None:
        await rig.declare(LINE)
        job = await rig.add(candidates=("a",), policy=ASKING)
        async with rig.refuses(InvalidValue):
            await rig.act(Verb.EDIT, job.id, edit=edit)

    async def test_retried_job_starts_with_the_given_stage_and_gates(self, rig: Rig) -> None:
        await rig.declare(DESK)
        job = await rig.add(stage="dial", gates=(LINE,))
        await rig.cap("line", 0)
        await rig.act(Verb.KILL, job.id)
        edit = Edit(stage="check", gates=(use_of(DESK),))
        assert await rig.act(Verb.RETRY, job.id, edit=edit) == [Acted.DONE]
        run = await rig.worker.take_one()
        assert (run.id, run.stage) == (job.id, "check")
        assert await rig.holders("desk") == [job.id]

    async def test_edited_candidates_replace_the_remaining_and_keep_the_record_of_those_asked(
        self, rig: Rig
    ) -> None:
        job = await rig.add(candidates=("a", "b"), gates=(SEAT,), policy=ASKING)
        await rig.worker.take_and_report(FoundUnfit, reason="ill")
        assert await rig.act(Verb.EDIT, job.id, edit=Edit(candidates=("d", "a"))) == [Acted.DONE]
        cascade = await rig.cascade(job.id)
        assert cascade.left == ("d", "a")
        assert [(one.candidate, one.answer) for one in cascade.asked] == [("a", Answer.UNFIT)]
        run = await rig.worker.take_one()
        assert run.candidate == "d"

    @pytest.mark.parametrize(
        ("candidates", "turn", "first"), [(("c", "a"), "a", "a"), (("b", "c"), "", "b")]
    )
    async def test_interrupted_turn_is_repeated_first_if_its_candidate_remains(
        self, rig: Rig, candidates: tuple[str, str], turn: str, first: str
    ) -> None:
        job = await rig.add(candidates=("a", "b"), gates=(SEAT,), policy=ASKING)
        await rig.worker.take_and_report(NextStage, stage="two", gates=(use_of(SEAT),))
        await rig.act(Verb.EDIT, job.id, edit=Edit(candidates=candidates))
        assert (await rig.cascade(job.id)).turn == turn
        assert (await rig.worker.take_one()).candidate == first

    async def test_parked_cascade_moves_to_a_new_free_candidate(self, rig: Rig) -> None:
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
    async def test_cascade_edited_to_no_candidates_is_exhausted_with_its_follow_up(
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

    async def test_retried_cascade_without_candidates_is_exhausted_again(self, rig: Rig) -> None:
        job = await rig.add(candidates=(), policy=ASKING)
        await rig.act(Verb.RETRY, job.id)
        view = await rig.view(job.id)
        assert (view.state, view.reason, view.life) == (State.DEAD, "exhausted", 2)
        assert [one.kind for one in (await rig.dump()).jobs].count("alarm") == 2

    @pytest.mark.parametrize("verb", [Verb.EDIT, Verb.RETRY])
    async def test_candidates_for_a_job_without_cascade_are_refused_and_others_apply(
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
