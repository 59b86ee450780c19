"""Signals: events from the outside world are applied once, kept if early, refused if late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.contract.outcomes import HandedOver, KnownAs, Verdict
from headway.contract.signals import Decided, Signal, SignalKind, SignalResult
from headway.core.errors import CallerError, InvalidValue, KeyConflict
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.rig import (
    AwaitingRun,
    ConformanceGroup,
    Rig,
    dial,
    each_bad_note,
    policy_with,
    ref,
)
from headway.testing.conformance.worker import LEASE_MS

LINE = Slots("line", 1)
HOUR_MS = 3_600_000
TIMEOUT_MS = 1_800_000


class SignalGroup(ConformanceGroup):
    """Events from the outside world, each applied once."""

    @pytest.mark.parametrize(
        ("decided", "state"),
        [
            (Decided.SUCCEEDED, State.SUCCEEDED),
            (Decided.DEAD, State.DEAD),
            (Decided.DECLINED, State.DEAD),
            (Decided.RETRY, State.SCHEDULED),
        ],
    )
    async def test_final_signal_settles_the_job(
        self, rig: Rig, decided: Decided, state: State
    ) -> None:
        call = await dial(rig, gates=(LINE,))
        reply = await rig.signal(call.key, decided, body=b'{"sec":9}', reason="hung up")
        assert (reply.answer, reply.job, reply.state) == (SignalResult.APPLIED, call.id, state)
        view = await rig.view(call.id)
        assert (view.state, view.worker, view.deadline_at) == (state, None, None)
        assert view.runs[0].ended_at == rig.clock()
        assert await rig.used("line") == 0
        if decided is Decided.SUCCEEDED:
            assert view.result == b'{"sec":9}'
        assert view.reason == "hung up"
        assert view.runs[0].error == ("hung up" if decided is Decided.RETRY else "")

    @pytest.mark.parametrize(
        ("decided", "reason"),
        [(Decided.DEAD, "failed"), (Decided.DECLINED, "declined"), (Decided.RETRY, "failed")],
    )
    async def test_failure_by_a_signal_without_a_reason_gets_one(
        self, rig: Rig, decided: Decided, reason: str
    ) -> None:
        call = await dial(rig)
        await rig.signal(call.key, decided)
        assert (await rig.view(call.id)).reason == reason

    async def test_signal_with_nul_in_a_name_is_refused(self, rig: Rig) -> None:
        call = await dial(rig)
        for fields in ({"key": "a\0"}, {"event": "e\0"}, {"known_as": "a\0"}):
            async with rig.refuses(InvalidValue, match="NUL"):
                await rig.store.signal(replace(Signal(key=call.key, event="end"), **fields))

    @each_bad_note
    async def test_signal_with_an_invalid_text_is_refused_and_writes_nothing(
        self, rig: Rig, text: str
    ) -> None:
        call = await dial(rig)
        note = Signal(key=call.key, event="noted", kind=SignalKind.NOTE)
        for event in (
            replace(note, label=text),
            replace(note, reason=text),
            Signal(key=call.key, event="end", reason=text, decided=Decided.DEAD),
            Signal(key="unknown", event="early", reason=text),
        ):
            async with rig.refuses(InvalidValue):
                await rig.store.signal(event)

    @pytest.mark.parametrize("text", ["nul\0", "\ud800"], ids=["nul", "surrogate"])
    async def test_signal_with_an_invalid_candidate_is_refused(self, rig: Rig, text: str) -> None:
        async with rig.refuses(InvalidValue):
            await rig.store.signal(Signal(key="early", event="end", candidate=text))

    async def test_retry_by_signal_can_set_the_time_and_uses_an_attempt(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key, Decided.RETRY, after_ms=5_555, reason="engaged")
        view = await rig.view(call.id)
        assert view.due_at == rig.clock() + 5_555
        assert (view.reason, view.error, view.runs[0].error) == ("engaged",) * 3
        rig.clock.advance(5_555)
        run = await rig.worker.take_one()
        assert (run.run, run.attempt) == (2, 2)

    async def test_success_by_signal_clears_the_reason_of_an_earlier_run(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key, Decided.RETRY, after_ms=0, reason="engaged")
        await rig.worker.take_and_report(HandedOver, key="second", timeout_ms=9_000)
        await rig.signal("second")
        assert (await rig.view(call.id)).reason == ""

    async def test_candidate_of_a_signal_is_ignored_if_the_job_has_none(self, rig: Rig) -> None:
        call = await dial(rig)
        reply = await rig.signal(call.key, candidate="ann")
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.SUCCEEDED)

    async def test_retry_by_signal_is_dead_when_attempts_are_exhausted(self, rig: Rig) -> None:
        job = await rig.add()
        for number in (1, 2, 3):
            key = f"call-{number}"
            await rig.worker.take_and_report(HandedOver, key=key, timeout_ms=9_000)
            await rig.signal(key, Decided.RETRY, after_ms=0, reason=key)
        view = await rig.view(job.id)
        assert (view.state, view.reason, view.error) == (State.DEAD, "call-3", "call-3")

    async def test_job_and_run_form_a_key(self, rig: Rig) -> None:
        call = await dial(rig)
        assert (await rig.signal(f"{call.id}:{call.run}")).answer is SignalResult.APPLIED
        assert await rig.state(call.id) is State.SUCCEEDED

    async def test_key_that_resembles_a_reference_names_no_run(self, rig: Rig) -> None:
        call = await dial(rig)
        for tail in ("", ":", ":x", ":2", ":1:1", ":\u0661", ":\u00b9", ":0000000001"):
            reply = await rig.signal(f"{call.id}{tail}")
            assert (reply.answer, reply.job) == (SignalResult.KEPT, None), tail
        assert (await rig.signal("unknown:1")).answer is SignalResult.KEPT

    async def test_duplicate_event_returns_already_and_changes_nothing(self, rig: Rig) -> None:
        call = await dial(rig)
        assert (await rig.signal(call.key, event="end")).answer is SignalResult.APPLIED
        async with rig.unchanged():
            rig.clock.advance(1)
            again = await rig.signal(call.key, Decided.DEAD, event="end")
            assert (again.answer, again.state) == (SignalResult.ALREADY, State.SUCCEEDED)

    async def test_duplicate_event_under_another_key_of_the_run_is_applied_once(
        self, rig: Rig
    ) -> None:
        call = await dial(rig)
        await call.worker.report(KnownAs(call.id, call.run, key="CA77"))
        await rig.signal("CA77", event="end")
        assert (await rig.signal(call.key, event="end")).answer is SignalResult.ALREADY

    @pytest.mark.parametrize("count", [16, 17, 18, 40])
    async def test_each_of_many_events_of_a_run_is_recognised_again(
        self, rig: Rig, count: int
    ) -> None:
        call = await dial(rig)
        events = [f"note-{n}" for n in range(count)]
        for event in events:
            await rig.signal(call.key, event=event, kind=SignalKind.NOTE, label=event)
        for event in events:
            reply = await rig.signal(call.key, event=event, kind=SignalKind.NOTE, label=event)
            assert reply.answer is SignalResult.ALREADY

    async def test_signal_can_register_another_key_for_its_run(self, rig: Rig) -> None:
        call = await dial(rig)
        reply = await rig.signal(call.key, kind=SignalKind.PROGRESS, known_as="CA77")
        assert reply.answer is SignalResult.APPLIED
        assert "CA77" in (await rig.view(call.id)).runs[0].keys
        assert (await rig.signal("CA77")).state == State.SUCCEEDED

    async def test_late_signal_registers_its_own_run_and_no_later_one(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key, Decided.RETRY, after_ms=0, known_as="CA-first")
        await rig.worker.take_and_report(HandedOver, key="second", timeout_ms=9_000)
        late = await rig.signal(call.key, Decided.DEAD, known_as="CA-late")
        assert late.answer is SignalResult.LATE
        first, second = (await rig.view(call.id)).runs
        assert {"CA-first", "CA-late"} <= set(first.keys)
        assert second.keys == ("second",)
        assert (await rig.signal("CA-late")).answer is SignalResult.LATE
        assert await rig.state(call.id) is State.AWAITING

    async def test_events_kept_under_a_key_are_applied_once_a_signal_registers_it(
        self, rig: Rig
    ) -> None:
        call = await dial(rig)
        assert (await rig.signal("CA77", event="end")).answer is SignalResult.KEPT
        reply = await rig.signal(call.key, kind=SignalKind.PROGRESS, known_as="CA77")
        assert reply.answer is SignalResult.APPLIED
        assert await rig.state(call.id) is State.SUCCEEDED

    async def test_second_final_signal_is_late(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key)
        late = await rig.signal(call.key, Decided.DEAD)
        assert (late.answer, late.job, late.state) == (SignalResult.LATE, call.id, State.SUCCEEDED)
        assert await rig.total("late_signals") == 1

    async def test_signal_after_the_deadline_is_late_however_often_it_is_sent(
        self, rig: Rig
    ) -> None:
        call = await dial(rig)
        await rig.pass_time(TIMEOUT_MS)
        for _ in range(2):
            late = await rig.signal(call.key, event="end")
            assert (late.answer, late.state) == (SignalResult.LATE, State.DEAD)

    async def test_kept_signal_too_late_for_its_candidate_stays_late(self, rig: Rig) -> None:
        run = await rig.start(
            candidates=("ann", "bob"), policy=policy_with(cascade=True), expires_at=None
        )
        word = Signal(key=ref(run), event="word", decided=Decided.ACCEPTED, candidate="bob")
        assert (await rig.store.signal(word)).answer is SignalResult.KEPT
        await rig.worker.report(HandedOver(run.id, run.run, key=ref(run), timeout_ms=9_000))
        assert (await rig.store.signal(word)).answer is SignalResult.LATE
        assert await rig.state(run.id) is State.AWAITING

    async def test_signal_and_deadline_race_in_the_store_and_one_wins(self, rig: Rig) -> None:
        call = await dial(rig)
        rig.clock.advance(TIMEOUT_MS)
        reply = await rig.signal(call.key)
        await rig.sweep()
        expected = State.SUCCEEDED if reply.answer is SignalResult.APPLIED else State.DEAD
        assert await rig.state(call.id) is expected
        assert reply.answer in {SignalResult.APPLIED, SignalResult.LATE}

    async def test_signal_of_an_earlier_run_is_late_for_the_later_one(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key, Decided.RETRY, after_ms=0)
        await rig.worker.take_and_report(HandedOver, key="call-second", timeout_ms=9_000)
        assert (await rig.signal(call.key)).answer is SignalResult.LATE
        assert (await rig.signal(f"{call.id}:1")).answer is SignalResult.LATE
        assert await rig.state(call.id) is State.AWAITING
        assert (await rig.signal("call-second")).answer is SignalResult.APPLIED

    async def test_signal_of_an_earlier_run_is_late_while_a_later_one_runs(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key, Decided.RETRY)
        await rig.pass_time(LEASE_MS)
        run = await rig.worker.take_one()
        assert (run.id, run.run) == (call.id, 2)
        assert (await rig.signal(call.key)).answer is SignalResult.LATE

    async def test_events_kept_under_a_key_are_not_applied_to_a_later_run(self, rig: Rig) -> None:
        call = await dial(rig)
        assert (await rig.signal("CA77")).answer is SignalResult.KEPT
        await rig.signal(call.key, Decided.RETRY)
        await rig.pass_time(LEASE_MS)
        await rig.worker.take_and_report(HandedOver, key="second", timeout_ms=9_000)
        late = await rig.signal(call.key, Decided.DEAD, known_as="CA77")
        assert late.answer is SignalResult.LATE
        assert await rig.state(call.id) is State.AWAITING

    async def test_early_signal_is_kept_and_settles_at_hand_over(self, rig: Rig) -> None:
        run = await rig.start(gates=(LINE,))
        assert (await rig.signal("call-1", body=b"7")).answer is SignalResult.KEPT
        await rig.worker.report(HandedOver(run.id, run.run, key="call-1", timeout_ms=9_000))
        view = await rig.view(run.id)
        assert (view.state, view.result) == (State.SUCCEEDED, b"7")
        assert await rig.used("line") == 0

    @pytest.mark.parametrize("own", [True, False], ids=["under its own key", "under another"])
    async def test_early_signal_under_the_runs_own_key_settles_at_the_hand_over(
        self, rig: Rig, own: bool
    ) -> None:
        run = await rig.start()
        assert (await rig.signal(ref(run))).answer is SignalResult.KEPT
        key = ref(run) if own else "CA77"
        await rig.worker.report(HandedOver(run.id, run.run, key=key, timeout_ms=9_000))
        assert await rig.state(run.id) is State.SUCCEEDED

    async def test_event_kept_under_the_bare_job_id_is_applied_under_a_key(self, rig: Rig) -> None:
        call = await dial(rig)
        assert (await rig.signal(call.id, event="a")).answer is SignalResult.KEPT
        assert (await rig.signal(call.key, event="a")).answer is SignalResult.APPLIED
        assert await rig.state(call.id) is State.SUCCEEDED
        assert (await rig.signal(call.key, event="a")).answer is SignalResult.ALREADY

    async def test_event_kept_under_the_bare_job_id_settles_at_the_hand_over(
        self, rig: Rig
    ) -> None:
        run = await rig.start()
        for key in (run.id, "call-1"):
            assert (await rig.signal(key, event="a")).answer is SignalResult.KEPT
        await rig.worker.report(HandedOver(run.id, run.run, key="call-1", timeout_ms=9_000))
        assert await rig.state(run.id) is State.SUCCEEDED

    async def test_early_signal_settles_when_its_key_becomes_known(self, rig: Rig) -> None:
        call = await dial(rig)
        assert (await rig.signal("CA77")).answer is SignalResult.KEPT
        assert await call.worker.report(KnownAs(call.id, call.run, key="CA77")) is Verdict.DONE
        assert await rig.state(call.id) is State.SUCCEEDED

    async def test_key_known_before_the_hand_over_stays_valid_after_it(self, rig: Rig) -> None:
        job = await rig.add()
        run = await rig.worker.take_and_report(KnownAs, key="CA77")
        await rig.worker.report(HandedOver(run.id, run.run, key="call-1", timeout_ms=9_000))
        assert (await rig.signal("CA77")).answer is SignalResult.APPLIED
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_early_signal_is_kept_for_an_hour(self, rig: Rig) -> None:
        job, other = await rig.add(), await rig.add(kind="text")
        await rig.signal("call-1")
        await rig.pass_time(HOUR_MS - 1)
        await rig.worker.take_and_report(HandedOver, key="call-1", timeout_ms=9_000_000)
        assert await rig.state(job.id) is State.SUCCEEDED
        await rig.signal("call-2")
        rig.clock.advance(HOUR_MS)
        await rig.worker.take_and_report(HandedOver, key="call-2", timeout_ms=9_000_000)
        assert await rig.state(other.id) is State.AWAITING

    async def test_event_kept_too_long_is_forgotten_alone(self, rig: Rig) -> None:
        jobs = await rig.add_many(2)
        await rig.signal("call-1", Decided.DEAD, event="a")
        rig.clock.advance(HOUR_MS // 2)
        await rig.signal("call-1", event="b")
        await rig.signal("call-2", event="a")
        await rig.pass_time(HOUR_MS // 2)
        for key in ("call-1", "call-2"):
            await rig.worker.take_and_report(HandedOver, key=key, timeout_ms=9_000)
        assert await rig.states(*jobs) == [State.SUCCEEDED] * 2

    async def test_sweep_asks_for_another_while_events_kept_too_long_may_be_left(
        self, rig: Rig
    ) -> None:
        for event in ("a", "b", "c"):
            await rig.signal("call-1", event=event)
        rig.clock.advance(HOUR_MS)
        assert [(await rig.store.sweep(2)).again for _ in range(2)] == [True, False]
        await rig.add()
        await rig.worker.take_and_report(HandedOver, key="call-1", timeout_ms=9_000)
        assert await rig.total("signals") == 0

    async def test_each_kept_event_is_applied_once_as_runs_take_its_key(self, rig: Rig) -> None:
        jobs = await rig.add_many(4)
        await rig.signal("call-1", Decided.DEAD)
        await rig.signal("call-1")
        rig.clock.advance(1)
        await rig.signal("call-1", Decided.DEAD)
        for _ in jobs:
            await rig.worker.take_and_report(HandedOver, key="call-1", timeout_ms=9_000)
        states = [State.DEAD, State.SUCCEEDED, State.DEAD, State.AWAITING]
        assert await rig.states(*jobs) == states

    async def test_event_kept_under_one_key_and_applied_under_another_is_applied_once(
        self, rig: Rig
    ) -> None:
        call = await dial(rig)
        ring = Signal(key="CA77", event="ring", kind=SignalKind.PROGRESS, extend_ms=60_000)
        assert (await rig.store.signal(ring)).answer is SignalResult.KEPT
        assert (await rig.store.signal(replace(ring, key=call.key))).answer is SignalResult.APPLIED
        deadline_at = rig.clock() + 60_000
        rig.clock.advance(1_000)
        await call.worker.report(KnownAs(call.id, call.run, key="CA77"))
        assert (await rig.view(call.id)).deadline_at == deadline_at

    async def test_early_duplicate_is_kept_once(self, rig: Rig) -> None:
        run = await rig.start()
        first = await rig.signal("call-1", event="end")
        second = await rig.signal("call-1", event="end")
        assert first.answer is SignalResult.KEPT
        assert second.answer in {SignalResult.KEPT, SignalResult.ALREADY}
        await rig.worker.report(HandedOver(run.id, run.run, key="call-1", timeout_ms=9_000))
        assert (await rig.signal("call-1", event="end")).answer is SignalResult.ALREADY
        assert await rig.total("signals") == 1

    async def test_progress_extends_the_deadline(self, rig: Rig) -> None:
        call = await dial(rig)
        rig.clock.advance(TIMEOUT_MS - 1)
        signal = Signal(
            key=call.key, event="ring", kind=SignalKind.PROGRESS, extend_ms=60_000, body=b'{"p":1}'
        )
        assert (await rig.store.signal(signal)).answer is SignalResult.APPLIED
        view = await rig.view(call.id)
        assert (view.state, view.deadline_at) == (State.AWAITING, rig.clock() + 60_000)
        assert view.progress == b'{"p":1}'
        assert (await rig.store.signal(signal)).answer is SignalResult.ALREADY
        await rig.pass_time(60_000)
        assert await rig.state(call.id) is State.DEAD

    async def test_progress_after_the_end_is_late(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key)
        reply = await rig.signal(call.key, kind=SignalKind.PROGRESS, extend_ms=9)
        assert reply.answer is SignalResult.LATE
        assert (await rig.view(call.id)).deadline_at is None

    async def test_note_labels_the_job_even_after_its_end_and_only_once(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key)
        note = Signal(
            key=call.key, event="dlr", kind=SignalKind.NOTE, label="DELIVERED", reason="receipt"
        )
        assert (await rig.store.signal(note)).answer is SignalResult.APPLIED
        assert (await rig.store.signal(note)).answer is SignalResult.ALREADY
        view = await rig.view(call.id)
        assert view.state is State.SUCCEEDED
        assert sum("DELIVERED" in line.what for line in view.trail) == 1

    async def test_note_labels_a_job_whose_handler_still_runs(self, rig: Rig) -> None:
        run = await rig.start()
        reply = await rig.signal(ref(run), kind=SignalKind.NOTE, label="RINGING")
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.RUNNING)
        assert ["RINGING" in line.what for line in (await rig.view(run.id)).trail] == [True]

    @pytest.mark.parametrize("handed_over", [True, False])
    async def test_early_note_is_kept_and_labels_the_job_even_after_its_end(
        self, rig: Rig, handed_over: bool
    ) -> None:
        run = await rig.start()
        if handed_over:
            assert (await rig.signal("SM55")).answer is SignalResult.KEPT
        note = await rig.signal("SM55", kind=SignalKind.NOTE, label="DELIVERED", event="dlr")
        assert note.answer is SignalResult.KEPT
        if handed_over:
            await rig.worker.report(HandedOver(run.id, run.run, key="SM55", timeout_ms=9_000))
        else:
            await rig.worker.report(KnownAs(run.id, run.run, key="SM55"))
        view = await rig.view(run.id)
        assert view.state is (State.SUCCEEDED if handed_over else State.RUNNING)
        assert ["DELIVERED" in line.what for line in view.trail] == [True]
        again = await rig.signal("SM55", kind=SignalKind.NOTE, label="DELIVERED", event="dlr")
        assert again.answer is SignalResult.ALREADY

    async def test_known_key_finds_the_run_for_notes_after_its_end(self, rig: Rig) -> None:
        call = await dial(rig)
        await call.worker.report(KnownAs(call.id, call.run, key="SM55"))
        await rig.signal("SM55")
        reply = await rig.signal("SM55", kind=SignalKind.NOTE, label="DELIVERED")
        assert (reply.answer, reply.job) == (SignalResult.APPLIED, call.id)

    async def test_repeated_known_as_returns_already(self, rig: Rig) -> None:
        call = await dial(rig)
        known = KnownAs(call.id, call.run, key="CA77")
        assert await call.worker.report(known) is Verdict.DONE
        assert await call.worker.report(known) in {Verdict.ALREADY, Verdict.DONE}
        assert (await rig.signal("CA77")).answer is SignalResult.APPLIED

    async def test_key_of_a_live_run_is_not_taken_by_another_job(self, rig: Rig) -> None:
        call, other = await dial(rig), await dial(rig, key="call-other")
        await call.worker.report(KnownAs(call.id, call.run, key="CA77"))
        # A server refuses another job's reference before it calls the store.
        keys = {"CA77": KeyConflict, call.key: KeyConflict, f"{call.id}:{call.run}": CallerError}
        for key, error in keys.items():
            async with rig.refuses(error, match=call.id):
                await other.worker.report(KnownAs(other.id, other.run, key=key))
        reply = await rig.signal("CA77")
        assert (reply.answer, reply.job) == (SignalResult.APPLIED, call.id)
        assert await rig.state(other.id) is State.AWAITING

    async def test_another_job_cannot_hand_over_under_the_key_of_a_live_run(self, rig: Rig) -> None:
        call = await dial(rig)
        run = await rig.start(gates=(LINE,))
        async with rig.refuses(KeyConflict, match=call.id):
            await rig.worker.report(HandedOver(run.id, run.run, key=call.key, timeout_ms=9_000))
        assert await rig.state(run.id) is State.RUNNING
        assert (await rig.signal(call.key)).job == call.id
        await rig.worker.report(HandedOver(run.id, run.run, key=call.key, timeout_ms=9_000))
        assert await rig.state(run.id) is State.AWAITING

    async def test_key_of_an_earlier_run_may_pass_to_another_job(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key, Decided.RETRY, after_ms=0)
        await rig.worker.take_and_report(HandedOver, key="second", timeout_ms=9_000)
        other = await dial(rig, key=call.key)
        assert (await rig.signal(call.key)).job == other.id
        assert (await rig.signal("second")).job == call.id

    async def test_reference_names_its_own_run_though_another_job_took_it_before(
        self, rig: Rig
    ) -> None:
        other = await dial(rig)
        job = await rig.add()
        await other.worker.report(KnownAs(other.id, other.run, key=f"{job.id}:1"))
        run = await rig.worker.take_and_report(HandedOver, key="call-2", timeout_ms=9_000)
        assert (await rig.signal(ref(run))).job == job.id
        assert await rig.state(other.id) is State.AWAITING

    async def test_two_jobs_that_take_one_key_in_one_request_are_refused_together(
        self, rig: Rig
    ) -> None:
        await rig.add_many(2)
        runs = await rig.worker.take(2)
        taking = [KnownAs(run.id, run.run, key="CA77") for run in runs]
        async with rig.refuses(KeyConflict, match=runs[0].id):
            await rig.worker.settle(*taking)
        assert (await rig.signal("CA77")).answer is SignalResult.KEPT

    async def test_key_of_an_ended_run_can_be_taken_by_another_job(self, rig: Rig) -> None:
        call, again = await dial(rig), await dial(rig, key="call-again")
        other = await dial(rig, key="call-other")
        await rig.signal(call.key, known_as="CA77")
        await rig.signal(again.key, Decided.RETRY, after_ms=0, known_as="CA78")
        for key in ("CA77", "CA78"):
            await other.worker.report(KnownAs(other.id, other.run, key=key))
        reply = await rig.signal("CA77", kind=SignalKind.PROGRESS)
        assert (reply.answer, reply.job) == (SignalResult.APPLIED, other.id)
        assert (await rig.signal("CA78")).job == other.id

    async def test_signal_is_applied_even_if_its_key_names_another_live_run(self, rig: Rig) -> None:
        call, other = await dial(rig), await dial(rig, key="call-other")
        await call.worker.report(KnownAs(call.id, call.run, key="CA77"))
        reply = await rig.signal(other.key, known_as="CA77")
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.SUCCEEDED)
        notes = [line.what for line in (await rig.view(other.id)).trail]
        assert any("CA77" in note and call.id in note for note in notes), notes
        assert (await rig.signal("CA77")).job == call.id

    async def test_signal_without_a_job_is_kept_and_names_no_job(self, rig: Rig) -> None:
        reply = await rig.signal("never heard of")
        assert (reply.answer, reply.job, reply.state) == (SignalResult.KEPT, None, None)

    async def test_thousand_deliveries_of_one_event_have_one_effect(self, rig: Rig) -> None:
        call: AwaitingRun = await dial(rig)
        answers = [(await rig.signal(call.key, event="end")).answer for _ in range(1000)]
        assert answers == [SignalResult.APPLIED] + [SignalResult.ALREADY] * 999
        assert await rig.total("succeeded") == 1
