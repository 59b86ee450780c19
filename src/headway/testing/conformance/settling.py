"""Settle: the effect of each outcome on its job, and of repeats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest

from headway.contract.claims import Claimed
from headway.contract.operate import Verb
from headway.contract.outcomes import (
    Died,
    Failed,
    HandedOver,
    NextStage,
    Outcome,
    Released,
    Returned,
    Snoozed,
    Succeeded,
    Verdict,
)
from headway.contract.signals import Decided
from headway.core.errors import CallerError, InvalidValue, UnknownGate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import DEFAULT_POLICY, MAX_ERROR
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.testing.conformance.rig import SHORT, UNKNOWN_ID, ConformanceGroup, Rig, each_end, ref
from headway.testing.conformance.worker import LANE, PlayedWorker
from headway.testing.jobs import POLICY, JobFields, keyed, use_of

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)


TWICE = replace(POLICY, retry=replace(POLICY.retry, attempts=2), on_deadline="retry")


async def _hand_over(rig: Rig, worker: PlayedWorker, run: Claimed, *last: Outcome) -> None:
    await worker.settle(HandedOver(run.id, run.run, key="call", timeout_ms=9_000), *last)
    if not last:
        await worker.settle(Returned(run.id, run.run))
        await rig.signal("call", Decided.DEAD)


async def _cancel(rig: Rig, worker: PlayedWorker, run: Claimed) -> None:
    await rig.cancel(run.id)
    await worker.settle(Released(run.id, run.run))


async def _cancel_though_done(rig: Rig, worker: PlayedWorker, run: Claimed) -> None:
    await rig.cancel(run.id)
    await worker.settle(Succeeded(run.id, run.run, result=b"1"))


async def _unused(rig: Rig, worker: PlayedWorker, run: Claimed) -> None:
    del rig, run
    await worker.beat(request=worker.request)


ENDS_WITHOUT_ERROR: dict[str, Callable[[Rig, PlayedWorker, Claimed], Awaitable[object]]] = {
    "succeeded": lambda _, worker, run: worker.finish(run),
    "result": lambda _, worker, run: worker.settle(Succeeded(run.id, run.run, result=b"1")),
    "failed": lambda _, worker, run: worker.settle(Failed(run.id, run.run)),
    "dead": lambda _, worker, run: worker.settle(Died(run.id, run.run, reason="bad number")),
    "snoozed": lambda _, worker, run: worker.settle(Snoozed(run.id, run.run, after_ms=9)),
    "next": lambda _, worker, run: worker.settle(NextStage(run.id, run.run, stage="dial")),
    "released": lambda _, worker, run: worker.settle(Released(run.id, run.run)),
    "unused": _unused,
    "cancelled": _cancel,
    "cancelled though done": _cancel_though_done,
    "handed over, dead": _hand_over,
    "handed over, snoozed": lambda rig, worker, run: _hand_over(
        rig, worker, run, Snoozed(run.id, run.run, after_ms=9)
    ),
}


class SettleGroup(ConformanceGroup):
    """What a live run may write; each outcome is checked on its own."""

    async def test_successes_of_first_and_later_runs_are_settled_in_one_request(
        self, rig: Rig
    ) -> None:
        seats = Slots("seats", 2)
        await rig.add_many(2, **SHORT, gates=(seats,))
        for run in await rig.worker.take(2):
            await rig.worker.settle(Released(run.id, run.run))
        await rig.add_many(2, **SHORT)
        runs = await rig.worker.take(4)
        assert [(run.run, run.gated) for run in runs] == [(2, True)] * 2 + [(1, False)] * 2
        verdicts = await rig.worker.finish(*runs)
        assert verdicts == [Verdict.DONE] * 4
        assert [await rig.state(run.id) for run in runs] == [State.SUCCEEDED] * 4
        assert [state.used for state in await rig.gates()] == [0]
        await rig.check()

    async def test_succeeded_job_keeps_its_result_and_its_run(self, rig: Rig) -> None:
        job = await rig.add()
        run = await rig.worker.take_one()
        rig.clock.advance(40)
        verdict = await rig.worker.report(Succeeded(run.id, run.run, result=b'{"ok":1}'))
        view = await rig.view(job.id)
        assert (verdict, view.state, view.result) == (Verdict.DONE, "succeeded", b'{"ok":1}')
        assert (view.finished_at, view.worker) == (rig.clock(), None)
        (ended,) = view.runs
        assert (ended.outcome, ended.error, ended.attempt) == ("succeeded", "", 1)
        assert (ended.claimed_at, ended.ended_at) == (rig.clock() - 40, rig.clock())
        assert (ended.worker, ended.due_at) == (rig.worker.id, job.due_at)

    async def test_failed_job_is_retried_by_its_policy_and_then_dead(self, rig: Rig) -> None:
        job = await rig.add()
        for attempt, delay_ms in ((1, 2_000), (2, 6_000)):
            run = await rig.worker.take_one()
            assert (run.attempt, run.run) == (attempt, attempt)
            await rig.worker.settle(Failed(run.id, run.run, error=f"boom {attempt}"))
            view = await rig.view(job.id)
            assert (view.state, view.due_at) == (State.SCHEDULED, rig.clock() + delay_ms)
            assert view.runs[-1].error == f"boom {attempt}"
            assert view.runs[-1].outcome == "failed"
            rig.clock.advance(delay_ms)
        run = await rig.worker.take_and_report(Failed, error="boom 3")
        view = await rig.view(job.id)
        assert (view.state, view.error, len(view.runs)) == (State.DEAD, "boom 3", 3)
        assert view.reason

    async def test_retry_delays_grow_up_to_the_cap(self, rig: Rig) -> None:
        retry = RetryPolicy(attempts=9, base_ms=1_000, cap_ms=20_000)
        jobs = await rig.add_many(8, policy=replace(POLICY, retry=retry))
        delays = {job.id: list[int]() for job in jobs}
        for attempt in range(1, 9):
            whole_ms = min(20_000, 1_000 * 2 ** (attempt - 1))
            for run in await rig.worker.take(8):
                await rig.worker.settle(Failed(run.id, run.run, error="boom"))
                delay_ms = (await rig.view(run.id)).due_at - rig.clock()
                assert whole_ms // 2 <= delay_ms <= whole_ms
                # The worker's log derives the same value from the run's reference.
                assert delay_ms == retry.delay_ms(run.attempt, ref(run))
                delays[run.id].append(delay_ms)
            rig.clock.advance(whole_ms)
        for found in delays.values():
            assert len(found) == 8
            assert found[:5] == sorted(found[:5])
        assert len({tuple(found) for found in delays.values()}) > 1

    async def test_failure_can_set_the_time_of_the_retry(self, rig: Rig) -> None:
        one, two = await rig.add(), await rig.add()
        first, second = await rig.worker.take(2)
        until_at = rig.clock() + 77_000
        await rig.worker.settle(
            Failed(first.id, first.run, after_ms=90),
            Failed(second.id, second.run, until_at=until_at),
        )
        assert (await rig.view(one.id)).due_at == rig.clock() + 90
        assert (await rig.view(two.id)).due_at == until_at

    async def test_died_job_is_dead_at_its_first_attempt(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(Died, reason="bad number", error="+1 is none")
        view = await rig.view(job.id)
        assert (view.state, view.reason, view.error) == ("dead", "bad number", "+1 is none")

    @pytest.mark.parametrize("end", list(ENDS_WITHOUT_ERROR))
    async def test_run_without_an_error_shows_none_of_an_earlier_run(
        self, rig: Rig, end: str
    ) -> None:
        first = await rig.start(policy=TWICE)
        # Long, because a store may keep long texts separately from the rest of the row.
        error = "boom" + "!" * 5_000
        await rig.worker.settle(Failed(first.id, first.run, error=error, after_ms=0))
        second = await rig.worker.take_one()
        assert [run.error for run in (await rig.view(first.id)).runs] == [error, ""]
        await ENDS_WITHOUT_ERROR[end](rig, rig.worker, second)
        view = await rig.view(first.id)
        assert [run.error for run in view.runs] == [error, ""]
        if view.state is State.DEAD:
            assert view.error == ""
        if view.state in {State.DEAD, State.CANCELLED}:
            await rig.act(Verb.RETRY, first.id)
            await rig.worker.take_one()
            runs = (await rig.view(first.id)).runs
            assert [run.error for run in runs] == [error, "", ""]

    @pytest.mark.parametrize("end", [partial(Snoozed, after_ms=0), Released])
    async def test_error_of_the_last_failed_run_is_shown_until_another_end(
        self, rig: Rig, end: type[Released]
    ) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(Failed, error="boom", after_ms=0)
        await rig.worker.take_and_report(end)
        view = await rig.view(job.id)
        assert (view.error, [run.error for run in view.runs]) == ("boom", ["boom", ""])

    async def test_run_keeps_the_error_raised_after_the_hand_over(self, rig: Rig) -> None:
        job = await rig.add(policy=TWICE)
        for key, decided in (("call-1", Decided.RETRY), ("call-2", Decided.DEAD)):
            run = await rig.worker.take_and_report(HandedOver, key=key, timeout_ms=9_000)
            await rig.worker.settle(Returned(run.id, run.run, error=f"raised after {key}"))
            await rig.signal(key, decided)
            rig.clock.advance(POLICY.retry.cap_ms)
        errors = [run.error for run in (await rig.view(job.id)).runs]
        assert errors == ["raised after call-1", "raised after call-2"]

    async def test_snoozed_job_is_due_later_and_repeats_its_attempt(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(Snoozed, after_ms=5_000)
        view = await rig.view(job.id)
        assert (view.state, view.due_at) == (State.SCHEDULED, rig.clock() + 5_000)
        assert view.runs[0].outcome == "snoozed"
        rig.clock.advance(4_999)
        assert await rig.worker.take() == []
        rig.clock.advance(1)
        run = await rig.worker.take_one()
        assert (run.run, run.attempt) == (2, 1)
        until_at = rig.clock() + 9_000
        await rig.worker.settle(Snoozed(run.id, run.run, until_at=until_at))
        assert (await rig.view(job.id)).due_at == until_at

    @pytest.mark.parametrize("fields", [SHORT, {}], ids=["short way", "long way"])
    @pytest.mark.parametrize("result", [None, b"1"], ids=["no result", "a result"])
    async def test_snooze_can_set_the_jobs_reason_until_it_succeeds(
        self, rig: Rig, fields: JobFields, result: bytes | None
    ) -> None:
        job = await rig.add(**fields)
        for given, kept in (("quiet hours", "quiet hours"), ("", "quiet hours"), ("away", "away")):
            await rig.worker.take_and_report(Snoozed, after_ms=9, reason=given)
            view = await rig.view(job.id)
            assert (view.state, view.reason) == (State.SCHEDULED, kept)
            rig.clock.advance(9)
        await rig.worker.take_and_report(Succeeded, result=result)
        assert (await rig.view(job.id)).reason == ""

    async def test_next_stage_has_its_own_gates_and_uses_no_attempt(self, rig: Rig) -> None:
        await rig.declare(LINE, PHONE)
        job = await rig.add(stage="check", gates=(use_of(PHONE, phone="1"),))
        run = await rig.worker.take_one()
        uses = (use_of(LINE),)
        await rig.worker.settle(NextStage(run.id, run.run, stage="dial", gates=uses))
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.WAITING, "dial", uses)
        assert (await rig.used("phone:1"), await rig.used("line")) == (0, 0)
        run = await rig.worker.take_one()
        assert (run.stage, run.run, run.attempt, run.gated) == ("dial", 2, 1, True)
        assert (await rig.used("phone:1"), await rig.used("line")) == (0, 1)
        stages = [one.stage for one in (await rig.view(job.id)).runs]
        assert stages == ["check", "dial"]

    async def test_next_stage_waits_at_its_gate_without_holding_the_last_one(
        self, rig: Rig
    ) -> None:
        await rig.add(gates=(LINE,), kind="text")
        job = await rig.add(stage="check", gates=(keyed(PHONE, phone="1"),))
        runs = {run.id: run for run in await rig.worker.take(2)}
        await rig.worker.settle(
            NextStage(job.id, runs[job.id].run, stage="dial", gates=(use_of(LINE),))
        )
        assert await rig.worker.take(5) == []
        why = await rig.why(job.id)
        assert [gate.name for gate in why.closed] == ["line"]

    @pytest.mark.parametrize(
        ("uses", "error"),
        [
            ((use_of(Slots("undefined", 1)),), UnknownGate),
            ((use_of(LINE), use_of(LINE)), InvalidValue),
            ((use_of(LINE, 0),), InvalidValue),
        ],
        ids=["unknown", "twice", "nothing"],
    )
    async def test_next_stage_with_invalid_gates_is_refused_and_writes_nothing(
        self, rig: Rig, uses: tuple[GateUse, ...], error: type[CallerError]
    ) -> None:
        await rig.declare(LINE)
        _, other = await rig.add_many(2)
        run = await rig.worker.take_one()
        async with rig.refuses(error):
            await rig.worker.report(NextStage(run.id, run.run, stage="dial", gates=uses))
        assert await rig.worker.take_ids(5) == [other.id]
        assert await rig.worker.finish(run) == [Verdict.DONE]

    async def test_released_job_is_claimable_at_once_with_the_same_attempt(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(Released, reason="full")
        view = await rig.view(job.id)
        assert (view.state, view.due_at) == (State.WAITING, job.due_at)
        run = await rig.new_worker().take_one()
        assert (run.id, run.run, run.attempt) == (job.id, 2, 1)

    async def test_outcomes_are_written_separately_and_answered_in_order(self, rig: Rig) -> None:
        await rig.add_many(3)
        worker, stranger = rig.new_worker(), rig.new_worker()
        one, two = await worker.take(2)
        (foreign,) = await stranger.take(1)
        verdicts = await worker.settle(
            Succeeded(one.id, one.run),
            Succeeded(foreign.id, foreign.run),
            Succeeded(UNKNOWN_ID, 1),
            Succeeded(two.id, two.run + 1),
            Died(two.id, two.run),
        )
        lost = Verdict.LOST
        assert verdicts == [Verdict.DONE, lost, lost, lost, Verdict.DONE]
        assert await rig.state(foreign.id) is State.RUNNING
        assert await rig.state(two.id) is State.DEAD

    @each_end
    async def test_settling_a_settled_run_again_returns_already_and_writes_nothing(
        self, rig: Rig, outcome: Callable[..., Outcome]
    ) -> None:
        await rig.add(gates=(LINE,))
        run = await rig.worker.take_and_report(outcome)
        rig.clock.advance(1)
        async with rig.unchanged("jobs", "gates", "stats"):
            assert await rig.worker.report(outcome(run.id, run.run)) is Verdict.ALREADY

    async def test_first_of_two_outcomes_of_one_run_wins(self, rig: Rig) -> None:
        run = await rig.start()
        verdicts = await rig.worker.settle(
            Succeeded(run.id, run.run, result=b"1"), Died(run.id, run.run)
        )
        assert verdicts == [Verdict.DONE, Verdict.ALREADY]
        assert await rig.state(run.id) is State.SUCCEEDED

    @pytest.mark.parametrize(
        "outcome",
        [
            partial(Failed, after_ms=9),
            partial(Snoozed, after_ms=9),
            Released,
            partial(NextStage, stage="dial"),
            Died,
        ],
        ids=["failed", "snoozed", "released", "next", "died"],
    )
    async def test_outcome_sent_twice_at_once_is_written_once(
        self, rig: Rig, outcome: Callable[..., Outcome]
    ) -> None:
        run = await rig.start()
        again = outcome(run.id, run.run)
        assert await rig.worker.settle(again, again) == [Verdict.DONE, Verdict.ALREADY]
        assert len((await rig.view(run.id)).runs) == 1

    async def test_early_event_stays_kept_if_the_settlement_is_refused(self, rig: Rig) -> None:
        await rig.add_many(2, expires_at=None)
        one, two = await rig.worker.take(2)
        await rig.signal("call-1", Decided.DEAD)
        await rig.signal("call-1")
        awaits = HandedOver(one.id, one.run, key="call-1", timeout_ms=9_000)
        nowhere = (use_of(Slots("nowhere", 1)),)
        with pytest.raises(UnknownGate):
            await rig.worker.settle(awaits, NextStage(two.id, two.run, stage="x", gates=nowhere))
        assert await rig.state(one.id) is State.RUNNING
        await rig.worker.settle(awaits)
        # The first signal that arrived is applied.
        assert await rig.state(one.id) is State.DEAD

    async def test_early_event_for_a_key_is_applied_to_one_run(self, rig: Rig) -> None:
        one, two = await rig.add_many(2)
        runs = await rig.worker.take(2)
        await rig.signal("call-1")
        await rig.worker.settle(
            *(HandedOver(run.id, run.run, key="call-1", timeout_ms=9_000) for run in runs)
        )
        assert await rig.states(one, two) == [State.SUCCEEDED, State.AWAITING]

    async def test_end_of_another_job_in_the_same_request_settles_no_lost_run(
        self, rig: Rig
    ) -> None:
        await rig.add_many(2)
        one, two = await rig.worker.take(2)
        await rig.worker.beat(one, request=rig.worker.request)
        lost = Failed(two.id, two.run)
        verdicts = await rig.worker.settle(Failed(one.id, one.run), lost)
        assert verdicts == [Verdict.DONE, Verdict.LOST]

    async def test_outcomes_of_one_run_are_written_in_order(self, rig: Rig) -> None:
        one, two = await rig.add_many(2, key=None, policy=DEFAULT_POLICY)
        runs = await rig.worker.take(2)
        verdicts = await rig.worker.settle(
            Died(one.id, runs[0].run),
            Succeeded(one.id, runs[0].run),
            HandedOver(two.id, runs[1].run, key="call-1", timeout_ms=9_000),
            Succeeded(two.id, runs[1].run),
        )
        assert verdicts[:3] == [Verdict.DONE, Verdict.ALREADY, Verdict.DONE]
        assert await rig.states(one, two) == [State.DEAD, State.AWAITING]

    async def test_repeated_settlements_after_the_next_claim_change_nothing(self, rig: Rig) -> None:
        await rig.add()
        worker, other = rig.new_worker(), rig.new_worker()
        run = await worker.take_and_report(Released)
        again = await other.take_one()
        assert await worker.report(Released(run.id, run.run)) in {Verdict.ALREADY, Verdict.LOST}
        assert await other.finish(again) == [Verdict.DONE]
        assert await worker.report(Died(run.id, run.run)) in {Verdict.ALREADY, Verdict.LOST}
        assert await rig.state(run.id) is State.SUCCEEDED

    async def test_long_error_is_truncated_and_the_job_settled(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(Died, error="x" * 50_000)
        assert len((await rig.view(job.id)).error) <= MAX_ERROR

    async def test_thousand_outcomes_fit_one_request(self, rig: Rig) -> None:
        await rig.add_many(1000)
        runs = await rig.worker.take(1000)
        verdicts = await rig.worker.finish(*runs)
        assert set(verdicts) == {Verdict.DONE}
        assert (await rig.dump()).stats.counts[State.SUCCEEDED] == 1000

    async def test_totals_count_what_happened(self, rig: Rig) -> None:
        jobs = await rig.add_many(8)
        plain = await rig.add_many(3, **SHORT)
        runs = await rig.worker.take(10)
        assert [run.id for run in runs] == [job.id for job in (*jobs[:8], *plain[:2])]
        await rig.worker.settle(
            Succeeded(runs[0].id, 1), Failed(runs[1].id, 1), Died(runs[2].id, 1),
            Snoozed(runs[3].id, 1, after_ms=9_000), Released(runs[4].id, 1),
            Failed(runs[5].id, 1, after_ms=9_000), Failed(runs[6].id, 1, until_at=rig.clock() + 1),
            HandedOver(runs[7].id, 1, key="call-1"),
        )  # fmt: skip
        await rig.worker.settle(*(Succeeded(run.id, 1) for run in runs[8:]))
        totals = (await rig.dump()).stats.totals
        assert {name: n for name, n in totals.items() if n} == {
            "enqueued": 11, "started": 10, "succeeded": 3, "failed": 3, "retried": 3, "dead": 1,
            "snoozed": 1, "handed_over": 1,
        }  # fmt: skip

    async def test_lane_counts_its_jobs_by_state(self, rig: Rig) -> None:
        await rig.add_many(4)
        await rig.add(due_at=rig.clock() + 9_000)
        runs = await rig.worker.take(3)
        await rig.worker.settle(Succeeded(runs[0].id, 1), Died(runs[1].id, 1))
        (lane,) = [lane for lane in (await rig.dump()).lanes if lane.name == LANE]
        counts = {state: n for state, n in lane.counts.items() if n}
        assert counts == {
            "waiting": 1, "scheduled": 1, "running": 1, "succeeded": 1, "dead": 1,
        }  # fmt: skip
        assert lane.unfinished == 3

    async def test_successes_of_one_call_count_in_the_lane_of_each_job(self, rig: Rig) -> None:
        lanes = {"a": 1, "b": 2, "c": 3}
        for lane, number in lanes.items():
            await rig.add_many(number, lane=lane, **SHORT)
        runs = await rig.worker.take(6, *lanes)
        assert len(runs) == 6
        await rig.worker.finish(*runs)
        found = {lane.name: lane.counts for lane in (await rig.dump()).lanes}
        assert {lane: {state: n for state, n in found[lane].items() if n} for lane in lanes} == {
            lane: {"succeeded": number} for lane, number in lanes.items()
        }

    async def test_final_job_is_forgotten_after_its_retention(self, rig: Rig) -> None:
        job, other = await rig.add(), await rig.add()
        await rig.worker.take_and_report(Succeeded)
        await rig.pass_time(POLICY.keep_ms - 1)
        assert await rig.state(job.id) is State.SUCCEEDED
        await rig.pass_time(2)
        assert await rig.missing(job.id)
        assert await rig.state(other.id) is State.WAITING
