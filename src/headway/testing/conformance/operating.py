"""Operators' actions: cancel, end, delay, retry."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from headway.contract.operate import Acted, ActRequest, Edit, Verb
from headway.contract.outcomes import (
    Died,
    Failed,
    FoundUnfit,
    HandedOver,
    Outcome,
    Released,
    Verdict,
)
from headway.contract.signals import Decided, SignalResult
from headway.contract.store import Sent
from headway.core.check import LATEST
from headway.core.errors import InvalidValue
from headway.core.gates.slots import Slots
from headway.core.job import MAX_PRIORITY, FollowUp, JobPolicy
from headway.core.naming import MAX_NOTE
from headway.core.state import State
from headway.testing.conformance.rig import (
    AUTHOR,
    REASON,
    UNKNOWN_ID,
    ConformanceGroup,
    Rig,
    dial,
    each_bad_note,
    each_end,
    policy_with,
)
from headway.testing.conformance.worker import LEASE_MS
from headway.testing.jobs import keyed

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)


async def in_state(rig: Rig, state: State) -> str:
    """Create a job, bring it into a state, and return its id."""
    worker = rig.new_worker()
    if state is State.SCHEDULED:
        return (await rig.add(due_at=rig.clock() + 9_000)).id
    if state is State.AWAITING:
        return (await dial(rig, key="call-of-state")).id
    if state is State.PARKED:
        await rig.declare(PHONE)
        for phone in ("1", "1"):
            job = await rig.add(gates=(keyed(PHONE, phone=phone),), lane="parked")
            await worker.take(1, "parked")
        return job.id
    job = await rig.add(lane="states")
    if state is State.CANCELLED:
        await rig.cancel(job.id)
    elif state is not State.WAITING:
        run = await worker.take_one("states")
        if state is State.SUCCEEDED:
            await worker.finish(run)
        elif state is State.DEAD:
            await worker.report(Died(run.id, run.run))
    return job.id


class ActGroup(ConformanceGroup):
    """The verbs, and the states to which they apply."""

    @pytest.mark.parametrize("state", list(State))
    @pytest.mark.parametrize("verb", list(Verb))
    async def test_verb_applies_in_its_states_and_is_refused_in_others(
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
            assert await rig.view(job) == before
        else:
            asked = verb is Verb.CANCEL and state in held
            assert answer is (Acted.ASKED if asked else Acted.DONE)

    async def test_replies_are_in_the_order_of_the_ids_and_mark_unknown_ones(
        self, rig: Rig
    ) -> None:
        one, two = await rig.add(), await rig.add()
        await rig.cancel(one.id)
        answers = await rig.cancel(two.id, UNKNOWN_ID, one.id)
        assert answers == [Acted.DONE, Acted.UNKNOWN, Acted.REFUSED]

    async def test_repeated_request_changes_nothing_and_returns_the_same(self, rig: Rig) -> None:
        job = await rig.add()
        assert await rig.act(Verb.KILL, job.id, request="once") == [Acted.DONE]
        assert await rig.act(Verb.RETRY, job.id, request="revive") == [Acted.DONE]
        async with rig.unchanged("jobs", "trail"):
            assert await rig.act(Verb.KILL, job.id, request="once") == [Acted.DONE]
            assert await rig.act(Verb.RETRY, job.id, request="revive") == [Acted.DONE]

    @pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.RUN_NOW, Verb.EDIT, Verb.KILL])
    async def test_move_is_in_the_trail_with_who_when_and_why(self, rig: Rig, verb: Verb) -> None:
        job = await rig.add(due_at=rig.clock() + 9_000)
        rig.clock.advance(60)
        await rig.act(verb, job.id, edit=Edit(priority=4))
        (line,) = (await rig.view(job.id)).trail
        assert (line.at, line.author, line.reason) == (rig.clock(), AUTHOR, REASON)
        assert verb in line.what
        (move,) = (await rig.dump()).trail
        assert (move.at, move.author, move.reason) == (rig.clock(), AUTHOR, REASON)
        assert verb in move.verb

    @pytest.mark.parametrize(
        ("verb", "state"), [(Verb.EDIT, State.WAITING), (Verb.RETRY, State.DEAD)]
    )
    async def test_edit_on_a_condition_that_does_not_hold_is_refused(
        self, rig: Rig, verb: Verb, state: State
    ) -> None:
        job = await in_state(rig, state)
        before = await rig.view(job)
        run, args = before.run, before.args
        for wrong in (
            Edit(priority=7, if_run=run + 1),
            Edit(priority=7, if_args=b'{"number":-1}'),
            Edit(priority=7, if_run=run, if_args=b"{}"),
            Edit(priority=7, if_run=run + 1, if_args=args),
        ):
            assert await rig.act(verb, job, edit=wrong) == [Acted.REFUSED]
            assert await rig.view(job) == before
        edit = Edit(priority=7, if_run=run, if_args=args)
        assert await rig.act(verb, job, edit=edit) == [Acted.DONE]
        assert (await rig.view(job)).priority == 7

    @pytest.mark.parametrize("state", sorted({*State} - {State.SUCCEEDED}))
    async def test_verb_for_other_states_is_refused_and_changes_nothing(
        self, rig: Rig, state: State
    ) -> None:
        job, others = await in_state(rig, state), tuple(one for one in State if one is not state)
        verb = Verb.RETRY if state in {State.DEAD, State.CANCELLED} else Verb.KILL
        async with rig.unchanged("jobs", "trail"):
            assert await rig.act(verb, job, states=others) == [Acted.REFUSED]
            assert await rig.state(job) is state
        assert await rig.act(verb, job, states=(State.SUCCEEDED, state)) == [Acted.DONE]

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

    async def test_job_edited_to_another_due_time_expires_as_long_after_it(self, rig: Rig) -> None:
        now = rig.clock()
        jobs = await rig.add_many(3, due_at=now + 1_000, expires_at=now + 4_000)
        later, sooner, last = (job.id for job in jobs)
        await rig.act(Verb.EDIT, later, edit=Edit(due_at=now + 6_000))
        await rig.act(Verb.EDIT, sooner, edit=Edit(due_at=now))
        await rig.act(Verb.EDIT, last, edit=Edit(due_at=LATEST))
        assert [(await rig.view(job)).expires_at for job in (later, sooner, last)] == [
            now + 9_000,
            now + 3_000,
            LATEST,
        ]
        await rig.pass_time(3_000)
        view = await rig.view(sooner)
        assert (view.state, view.reason) == (State.DEAD, "expired")
        await rig.pass_time(3_000)
        assert await rig.worker.take_ids(9) == [later]

    @each_bad_note
    async def test_action_with_an_invalid_reason_is_refused_and_writes_nothing(
        self, rig: Rig, text: str
    ) -> None:
        job = await rig.add()
        request = ActRequest(
            request="once", ids=(job.id,), verb=Verb.CANCEL, author=AUTHOR, reason=text
        )
        async with rig.refuses(InvalidValue, match="reason"):
            await rig.store.act(request)

    async def test_longest_reason_is_kept_and_given_to_the_follow_up(self, rig: Rig) -> None:
        states = (State.CANCELLED,)
        job = await rig.add(policy=JobPolicy(on_final=FollowUp(kind="alert", states=states)))
        reason = "\U0001f4de" * MAX_NOTE
        request = ActRequest(
            request="once", ids=(job.id,), verb=Verb.CANCEL, author=AUTHOR, reason=reason
        )
        assert [one.answer for one in await rig.store.act(request)] == [Acted.DONE]
        (line,) = (await rig.view(job.id)).trail
        assert line.reason == reason
        follow_up = await rig.worker.take_one(job.lane)
        assert msgspec.json.decode(follow_up.args)["reason"] == reason

    async def test_action_on_an_invalid_id_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        job = await rig.add()
        async with rig.refuses(InvalidValue, match="id"):
            await rig.cancel(job.id, "\ud800")

    async def test_edit_out_of_range_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        job = await rig.add()
        for edit in (Edit(priority=-1), Edit(priority=MAX_PRIORITY + 1)):
            async with rig.refuses(InvalidValue):
                await rig.act(Verb.EDIT, job.id, edit=edit)

    @pytest.mark.parametrize(
        ("verb", "state"), [(Verb.SUCCEED, State.SUCCEEDED), (Verb.KILL, State.DEAD)]
    )
    @pytest.mark.parametrize("awaiting", [False, True])
    async def test_settling_by_an_operator_releases_permits_and_fences_the_run(
        self, rig: Rig, verb: Verb, state: State, *, awaiting: bool
    ) -> None:
        run = await rig.start(gates=(LINE,))
        if awaiting:
            await rig.worker.report(HandedOver(run.id, run.run, key="call-1", timeout_ms=9_000))
        assert await rig.act(verb, run.id) == [Acted.DONE]
        assert await rig.state(run.id) is state
        assert await rig.used("line") == 0
        assert (await rig.worker.beat(run)).lost == ((run.id, run.run),)
        assert await rig.worker.report(Released(run.id, run.run)) in {Verdict.LOST, Verdict.ALREADY}
        assert await rig.state(run.id) is state

    async def test_twice_edited_job_still_counts_as_the_one_sent(self, rig: Rig) -> None:
        job = await rig.add()
        for number in (1, 2):
            edit = Edit(args=b'{"number":-%d}' % number)
            assert await rig.act(Verb.EDIT, job.id, edit=edit) == [Acted.DONE]
        assert await rig.enqueue(job) == [Sent(job.id, created=False)]

    async def test_due_job_keeps_its_place_on_run_now(self, rig: Rig) -> None:
        first = await rig.add(due_at=rig.clock() + 1_000)
        second = await rig.add(due_at=rig.clock() + 2_000)
        rig.clock.advance(3_000)
        await rig.act(Verb.RUN_NOW, first.id)
        assert await rig.worker.take_ids(5) == [first.id, second.id]


class CancelGroup(ConformanceGroup):
    """Queued jobs are cancelled at once; running ones are asked to stop."""

    @pytest.mark.parametrize("state", [State.SCHEDULED, State.WAITING, State.PARKED])
    async def test_cancel_of_a_queued_job_applies_at_once(self, rig: Rig, state: State) -> None:
        job = await in_state(rig, state)
        assert await rig.state(job) is state
        assert await rig.cancel(job) == [Acted.DONE]
        view = await rig.view(job)
        assert (view.state, view.finished_at) == (State.CANCELLED, rig.clock())
        await rig.pass_time(20_000)
        assert job not in await rig.worker.take_ids(9, "calls", "states", "parked")

    @pytest.mark.parametrize("state", [State.RUNNING, State.AWAITING])
    async def test_cancel_of_a_held_job_is_a_request_and_keeps_its_permits(
        self, rig: Rig, state: State
    ) -> None:
        run = await rig.start(gates=(LINE,))
        if state is State.AWAITING:
            await rig.worker.report(HandedOver(run.id, run.run, key="call-1", timeout_ms=60_000))
        for _ in range(2):
            assert await rig.cancel(run.id) == [Acted.ASKED]
        view = await rig.view(run.id)
        assert (view.state, view.cancel_requested) == (state, True)
        assert await rig.holders("line") == [run.id]

    async def test_next_beat_reports_the_cancel_request(self, rig: Rig) -> None:
        await rig.add_many(2)
        one, two = await rig.worker.take(2)
        await rig.cancel(two.id)
        reply = await rig.worker.beat(one, two)
        assert (reply.cancel, reply.lost) == (((two.id, two.run),), ())

    @each_end
    async def test_job_with_a_cancel_request_ends_cancelled_whatever_its_outcome(
        self, rig: Rig, outcome: Callable[..., Outcome]
    ) -> None:
        run = await rig.start(gates=(LINE,))
        await rig.cancel(run.id)
        assert await rig.worker.report(outcome(run.id, run.run)) is Verdict.CANCELLED
        view = await rig.view(run.id)
        assert (view.state, view.finished_at) == (State.CANCELLED, rig.clock())
        assert await rig.used("line") == 0
        assert view.runs[0].outcome

    async def test_outcome_of_a_cancelled_run_is_kept_on_the_run(self, rig: Rig) -> None:
        run = await rig.start()
        await rig.cancel(run.id)
        await rig.worker.report(Failed(run.id, run.run, error="boom"))
        (ended,) = (await rig.view(run.id)).runs
        assert (ended.outcome, ended.error) == ("failed", "boom")

    @pytest.mark.parametrize("decided", [Decided.SUCCEEDED, Decided.RETRY, Decided.DEAD])
    async def test_job_with_a_cancel_request_ends_cancelled_whatever_its_signal(
        self, rig: Rig, decided: Decided
    ) -> None:
        call = await dial(rig)
        await rig.cancel(call.id)
        reply = await rig.signal(call.key, decided)
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.CANCELLED)
        assert await rig.state(call.id) is State.CANCELLED

    async def test_job_with_a_cancel_request_may_still_hand_over_and_ends_cancelled(
        self, rig: Rig
    ) -> None:
        run = await rig.start()
        await rig.cancel(run.id)
        await rig.worker.report(HandedOver(run.id, run.run, key="call-1", timeout_ms=9_000))
        assert await rig.state(run.id) in {State.AWAITING, State.CANCELLED}
        await rig.pass_time(9_000)
        assert await rig.state(run.id) is State.CANCELLED

    async def test_job_with_a_cancel_request_ends_cancelled_when_its_lease_is_lost(
        self, rig: Rig
    ) -> None:
        run = await rig.start(gates=(LINE,))
        await rig.cancel(run.id)
        await rig.pass_time(LEASE_MS + 1)
        assert await rig.state(run.id) is State.CANCELLED
        assert await rig.used("line") == 0

    async def test_job_with_a_cancel_request_ends_cancelled_at_its_deadline(self, rig: Rig) -> None:
        call = await dial(rig, policy=policy_with(on_deadline="retry"))
        await rig.cancel(call.id)
        await rig.pass_time(1_800_000)
        assert await rig.state(call.id) is State.CANCELLED

    async def test_cancelled_job_starts_in_no_later_claim(self, rig: Rig) -> None:
        jobs = await rig.add_many(5)
        await rig.cancel(*(job.id for job in jobs[::2]))
        assert await rig.worker.take_ids(9) == [jobs[1].id, jobs[3].id]

    @pytest.mark.parametrize(
        ("verb", "state"), [(Verb.SUCCEED, State.SUCCEEDED), (Verb.KILL, State.DEAD)]
    )
    async def test_operator_decision_replaces_a_cancel_request(
        self, rig: Rig, verb: Verb, state: State
    ) -> None:
        run = await rig.start()
        assert await rig.cancel(run.id) == [Acted.ASKED]
        assert await rig.act(verb, run.id) == [Acted.DONE]
        assert await rig.state(run.id) is state


class NewLifeGroup(ConformanceGroup):
    """An operator's retry of a dead or cancelled job."""

    @pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
    async def test_retry_starts_a_new_life_with_the_same_id_and_the_next_run(
        self, rig: Rig, state: State
    ) -> None:
        job = await rig.add()
        for _ in range(2):
            run = await rig.worker.take_and_report(Failed, after_ms=0)
        if state is State.CANCELLED:
            await rig.cancel(job.id)
        else:
            await rig.act(Verb.KILL, job.id)
        assert await rig.act(Verb.RETRY, job.id) == [Acted.DONE]
        view = await rig.view(job.id)
        assert (view.state, view.life, view.run) == (State.WAITING, 2, 2)
        assert (view.finished_at, view.cancel_requested) == (None, False)
        run = await rig.worker.take_one()
        assert (run.id, run.run, run.attempt) == (job.id, 3, 1)
        assert len((await rig.view(job.id)).runs) == 3

    async def test_new_life_has_all_its_attempts(self, rig: Rig) -> None:
        job = await rig.add()
        for _ in range(2):
            for _ in range(3):
                await rig.worker.take_and_report(Failed, after_ms=0)
            assert await rig.state(job.id) is State.DEAD
            await rig.act(Verb.RETRY, job.id)
        assert (await rig.view(job.id)).run == 6

    async def test_new_life_can_have_other_arguments(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.act(Verb.KILL, job.id)
        edit = Edit(args=b'{"number":0}', priority=3)
        await rig.act(Verb.RETRY, job.id, edit=edit)
        run = await rig.worker.take_one()
        assert (run.args, run.priority) == (b'{"number":0}', 3)

    async def test_new_life_needs_its_gates_again(self, rig: Rig) -> None:
        job = await rig.add(gates=(LINE, keyed(PHONE, phone="1")))
        await rig.worker.take_and_report(Died)
        await rig.act(Verb.RETRY, job.id)
        await rig.cap("line", 0)
        assert await rig.worker.take(5) == []
        await rig.cap("line", 1)
        assert await rig.worker.take_ids(5) == [job.id]
        assert await rig.holders("phone:1") == [job.id]

    async def test_cancel_request_ends_with_the_life(self, rig: Rig) -> None:
        job = await rig.add()
        run = await rig.worker.take_one()
        await rig.cancel(job.id)
        assert await rig.worker.finish(run) == [Verdict.CANCELLED]
        await rig.act(Verb.RETRY, job.id)
        run = await rig.worker.take_one()
        assert (await rig.worker.beat(run, request=rig.worker.request)).cancel == ()
        assert await rig.worker.finish(run) == [Verdict.DONE]
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_new_life_of_an_exhausted_cascade_asks_everyone_again(self, rig: Rig) -> None:
        job = await rig.add(candidates=("ann", "bob"), policy=policy_with(cascade=True))
        for _ in range(2):
            await rig.worker.take_and_report(FoundUnfit)
        assert await rig.state(job.id) is State.DEAD
        await rig.act(Verb.RETRY, job.id)
        asked = [(await rig.worker.take_and_report(FoundUnfit)).candidate for _ in range(2)]
        assert asked == ["ann", "bob"]

    async def test_new_life_has_not_waited_yet(self, rig: Rig) -> None:
        gates = (keyed(PHONE, phone="1"),)
        first, second = await rig.add_many(2, gates=gates, due_at=rig.clock())
        run = await rig.worker.take_one()
        assert await rig.worker.take() == []
        rig.clock.advance(4_000)
        await rig.worker.finish(run)
        await rig.worker.take_and_report(Died)
        await rig.act(Verb.RETRY, second.id)
        await rig.worker.take_one()
        waits = [run.blocked_ms for run in (await rig.view(second.id)).runs]
        assert (first.id, waits) == (run.id, [4_000, 0])

    async def test_key_of_a_new_life_stays_valid(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.act(Verb.KILL, job.id)
        await rig.act(Verb.RETRY, job.id)
        await rig.pass_time(job.policy.key_for_ms + 1)
        again = rig.jobs.make(key=job.key, args=job.args, subject=job.subject)
        assert await rig.enqueue(again) == [Sent(job.id, created=False)]

    async def test_signal_of_an_earlier_life_is_late_for_the_new_one(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.act(Verb.KILL, call.id)
        await rig.act(Verb.RETRY, call.id)
        assert (await rig.signal(call.key)).answer is SignalResult.LATE
        await rig.worker.take_and_report(HandedOver, key="call-2", timeout_ms=9_000)
        assert (await rig.signal("call-2")).answer is SignalResult.APPLIED

    async def test_retention_counts_from_the_last_end(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.act(Verb.KILL, job.id)
        await rig.pass_time(job.policy.keep_ms - 1)
        await rig.act(Verb.RETRY, job.id)
        await rig.pass_time(2)
        assert await rig.state(job.id) is State.WAITING
        await rig.cancel(job.id)
        await rig.pass_time(job.policy.keep_ms - 1)
        assert await rig.state(job.id) is State.CANCELLED
