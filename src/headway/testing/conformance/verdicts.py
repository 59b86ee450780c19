"""Verdicts: which run gets ALREADY, and which outcomes are refused for every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from headway.contract.outcomes import (
    Died,
    Failed,
    FoundUnfit,
    GaveBack,
    HandedOver,
    KnownAs,
    Outcome,
    Released,
    Returned,
    Snoozed,
    Succeeded,
    Verdict,
)
from headway.contract.signals import Decided
from headway.core.errors import CallerError, InvalidState, InvalidValue, PayloadTooLarge
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import DEFAULT_POLICY, MAX_RESULT
from headway.core.state import State
from headway.testing.conformance.accepting import ask, offered
from headway.testing.conformance.fencing import all_writes
from headway.testing.conformance.rig import SHORT, ConformanceGroup, Rig, dial, policy_with, ref
from headway.testing.conformance.worker import LEASE_MS
from headway.testing.jobs import POLICY, use_of

LINE = Slots("line", 1)
MOST_REASON = 512

ENDS: dict[str, Callable[[str, int], Outcome]] = {
    "succeeded": Succeeded,
    "succeeded with a result": partial(Succeeded, result=b"1"),
    "died": Died,
}


class VerdictGroup(ConformanceGroup):
    """ALREADY is for the run that reported its own end; every other run gets LOST."""

    @pytest.mark.parametrize("plain", [True, False], ids=["short way", "long way"])
    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
    async def test_already_is_returned_only_to_the_same_run_and_worker(
        self, rig: Rig, end: Callable[[str, int], Outcome], plain: bool
    ) -> None:
        if plain:
            await rig.add(**SHORT)
        else:
            await rig.add()
        worker, other = rig.new_worker(), rig.new_worker()
        await other.beat()
        first = await worker.take_and_report(Released)
        run = await worker.take_and_report(end)
        for again in (end, Succeeded, Failed):
            assert await worker.report(again(run.id, run.run)) is Verdict.ALREADY
            assert await worker.report(again(run.id, run.run + 1)) is Verdict.LOST
            assert await other.report(again(run.id, run.run)) is Verdict.LOST
            assert await other.report(again(run.id, first.run)) is Verdict.LOST

    @pytest.mark.parametrize("alone", [True, False], ids=["alone", "among runs that go on"])
    @pytest.mark.parametrize("gates", [(), (use_of(LINE),)], ids=["plain", "gated"])
    async def test_plain_success_is_recorded_completely_and_later_forgotten(
        self, rig: Rig, gates: tuple[GateUse, ...], alone: bool
    ) -> None:
        await rig.declare(LINE)
        await rig.cap("line", 3)
        jobs = await rig.add_many(3, **SHORT, gates=gates)
        for run in await rig.worker.take(3):
            await rig.worker.report(Failed(run.id, run.run, error="boom", after_ms=0))
        rig.clock.advance(40)
        runs = await rig.worker.take(3)
        ends = runs[:1] if alone else runs[:2]
        rig.clock.advance(2)
        assert set(await rig.worker.finish(*ends)) == {Verdict.DONE}
        for run in ends:
            view = await rig.view(run.id)
            assert (view.state, view.worker, view.finished_at) == (
                State.SUCCEEDED, None, rig.clock(),
            )  # fmt: skip
            assert (view.run, view.attempt, view.result) == (2, 2, None)
            ended = view.runs[-1]
            assert (ended.run, ended.outcome, ended.error) == (2, "succeeded", "")
            assert (ended.worker, ended.attempt) == (rig.worker.id, 2)
            assert (ended.claimed_at, ended.ended_at) == (rig.clock() - 2, rig.clock())
        rest = {job.id for job in jobs} - {run.id for run in ends}
        for one in rest:
            view = await rig.view(one)
            assert (view.state, view.worker, view.finished_at) == (
                State.RUNNING, rig.worker.id, None,
            )  # fmt: skip
        assert await rig.used("line") == (len(rest) if gates else 0)
        reply = await rig.worker.beat(*((run.id, run.run) for run in runs))
        assert set(reply.lost) == {(run.id, run.run) for run in ends}
        await rig.worker.finish(*(run for run in runs if run.id in rest))
        await rig.pass_time(DEFAULT_POLICY.keep_ms - 1)
        assert not await rig.missing(ends[0].id)
        await rig.pass_time(1)
        assert [await rig.missing(job.id) for job in jobs] == [True] * 3

    @pytest.mark.parametrize("end", [Succeeded, Released], ids=["final", "queued again"])
    async def test_ended_run_gets_lost_for_what_its_handler_would_go_on_after(
        self, rig: Rig, end: Callable[[str, int], Outcome]
    ) -> None:
        await rig.add(gates=(LINE,))
        run = await rig.worker.take_and_report(end)
        fence = (run.id, run.run)
        for outcome in (
            HandedOver(*fence, key="call-1", timeout_ms=9_000),
            KnownAs(*fence, key="sid-1"),
            GaveBack(*fence, gate="line"),
        ):
            assert await rig.worker.report(outcome) is Verdict.LOST, outcome

    async def test_earlier_run_gets_what_became_of_it(self, rig: Rig) -> None:
        job = await rig.add()
        worker, other = rig.new_worker(), rig.new_worker()
        lost = await worker.take_one()
        await rig.pass_time(LEASE_MS + 1)
        rig.clock.advance(2_000)
        released = await worker.take_and_report(Released)
        live = await other.take_one()
        assert [lost.run, released.run, live.run] == [1, 2, 3]
        assert await worker.report(Released(job.id, 1)) is Verdict.LOST
        assert await worker.report(Released(job.id, 2)) is Verdict.ALREADY
        assert await worker.report(Released(job.id, 3)) is Verdict.LOST
        assert await other.report(Released(job.id, 2)) is Verdict.LOST
        assert await other.report(Succeeded(job.id, 3)) is Verdict.DONE

    async def test_return_gets_already_until_the_run_is_uncertain(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.report(Failed(job.id, (await rig.worker.take_one()).run))
        rig.clock.advance(2_000)
        run = await rig.worker.take_and_report(HandedOver, key="call-1", timeout_ms=90_000)
        assert await rig.worker.report(Returned(run.id, run.run)) is Verdict.DONE
        async with rig.unchanged():
            assert await rig.worker.report(Returned(run.id, run.run)) is Verdict.ALREADY
            # The first run's outcome is not this run's, which has not ended.
            for outcome in (Succeeded, Failed, Died, Released):
                assert await rig.worker.report(outcome(run.id, run.run)) is Verdict.LOST
        await rig.signal("call-1")
        assert await rig.worker.report(Returned(run.id, run.run)) is Verdict.ALREADY

    @pytest.mark.parametrize("attempts", [1, 2], ids=["dead", "tried again"])
    async def test_lost_run_gets_lost_whatever_it_reports(self, rig: Rig, attempts: int) -> None:
        policy = policy_with(retry=replace(POLICY.retry, attempts=attempts))
        run = await rig.start(policy=policy, expires_at=None)
        await rig.pass_time(LEASE_MS + 1)
        await rig.worker.beat()
        async with rig.unchanged():
            for outcome in all_writes(run):
                assert await rig.worker.report(outcome) is Verdict.LOST, outcome
        assert await rig.state(run.id) is (State.DEAD if attempts == 1 else State.SCHEDULED)

    async def test_run_with_a_cancel_request_may_report_what_does_not_end_it(
        self, rig: Rig
    ) -> None:
        run = await rig.start(gates=(LINE,))
        await rig.cancel(run.id)
        assert await rig.worker.report(KnownAs(run.id, run.run, key="sid-1")) is Verdict.DONE
        assert await rig.worker.report(GaveBack(run.id, run.run, gate="line")) is Verdict.DONE
        assert (await rig.used("line"), await rig.state(run.id)) == (0, State.RUNNING)
        assert await rig.worker.report(Released(run.id, run.run)) is Verdict.CANCELLED

    @pytest.mark.parametrize("outcome", [Returned, Succeeded, Released])
    async def test_handler_end_after_its_hand_over_is_recorded_as_its_return(
        self, rig: Rig, outcome: Callable[[str, int], Outcome]
    ) -> None:
        call = await dial(rig, policy=DEFAULT_POLICY)
        assert await call.worker.report(outcome(call.id, call.run)) is Verdict.DONE
        view = await rig.view(call.id)
        assert (view.state, view.worker) == (State.AWAITING, None)
        assert await call.worker.report(Returned(call.id, call.run)) is Verdict.ALREADY
        # Its handler has returned, so the end of the lease leaves nothing in doubt.
        await rig.pass_time(LEASE_MS + 1)
        assert (await rig.view(call.id)).in_doubt is False
        await rig.signal(call.key)
        assert await rig.state(call.id) is State.SUCCEEDED

    async def test_candidate_found_unfit_after_accepting_is_only_recorded(self, rig: Rig) -> None:
        await offered(rig, "ann", "bob")
        run = await ask(rig.worker)
        await rig.signal(ref(run), Decided.ACCEPTED, candidate="ann")
        assert await rig.worker.report(FoundUnfit(run.id, run.run, reason="late")) is Verdict.DONE
        view = await rig.view(run.id)
        assert (view.state, view.worker, view.in_doubt) == (State.AWAITING, None, False)
        assert view.cascade is not None
        assert view.cascade.accepted == "ann"
        assert await rig.worker.report(Returned(run.id, run.run)) is Verdict.ALREADY

    async def test_reason_is_the_last_line_of_the_error_truncated(self, rig: Rig) -> None:
        policy = DEFAULT_POLICY
        retried, cut, died, silent = await rig.add_many(4, policy=policy, key=None)
        runs = {run.id: run.run for run in await rig.worker.take(4)}
        long = "x" * (MOST_REASON + 1)
        await rig.worker.settle(
            Failed(retried.id, runs[retried.id], error="Traceback\n  boom \n", after_ms=9_000),
            Failed(cut.id, runs[cut.id], error=f"Traceback\n{long}", after_ms=9_000),
            Died(died.id, runs[died.id], reason=long),
            Died(silent.id, runs[silent.id]),
        )
        reasons = [(await rig.view(job.id)).reason for job in (retried, cut, died, silent)]
        assert reasons == ["  boom", "x" * MOST_REASON, "x" * MOST_REASON, "failed"]

    async def test_last_failed_attempt_without_an_error_has_a_reason(self, rig: Rig) -> None:
        job = await rig.add()
        for _ in range(3):
            await rig.worker.take_and_report(Failed)
            rig.clock.advance(90_000)
        view = await rig.view(job.id)
        assert (view.state, view.reason, view.error) == (State.DEAD, "failed", "")

    @pytest.mark.parametrize(
        ("outcome", "error"),
        [
            (Snoozed, InvalidValue),
            (HandedOver, InvalidValue),
            (KnownAs, InvalidValue),
            (Returned, InvalidState),
            (partial(Succeeded, result=b'"' + b"9" * (MAX_RESULT - 1) + b'"'), PayloadTooLarge),
        ],
        ids=["snoozed", "handed over", "known as", "returned", "succeeded"],
    )
    async def test_outcome_no_run_may_report_is_refused_and_writes_nothing(
        self, rig: Rig, outcome: Callable[[str, int], Outcome], error: type[CallerError]
    ) -> None:
        job, other = await rig.add_many(2, key=None, policy=DEFAULT_POLICY)
        runs = {run.id: run.run for run in await rig.worker.take(2)}
        for sent in (
            [outcome(job.id, runs[job.id])],
            [Died(other.id, runs[other.id]), outcome(job.id, runs[job.id])],
            [Succeeded(other.id, runs[other.id]), outcome(job.id, runs[job.id])],
        ):
            async with rig.refuses(error):
                await rig.worker.settle(*sent)

    async def test_result_may_reach_its_limit_exactly(self, rig: Rig) -> None:
        run = await rig.start()
        whole = b'"' + b"9" * (MAX_RESULT - 2) + b'"'
        assert await rig.worker.report(Succeeded(run.id, run.run, result=whole)) is Verdict.DONE
        assert (await rig.view(run.id)).result == whole

    async def test_hand_over_with_no_timeout_has_a_later_deadline(self, rig: Rig) -> None:
        call = await dial(rig, timeout_ms=0)
        assert (await rig.view(call.id)).deadline_at == rig.clock() + 1

    async def test_key_of_a_run_without_hand_over_is_kept_on_it(self, rig: Rig) -> None:
        job = await rig.add(**SHORT)
        run = await rig.worker.take_and_report(KnownAs, key="sid-1")
        assert [one.keys for one in (await rig.view(job.id)).runs] == [("sid-1",)]
        assert await rig.worker.finish(run) == [Verdict.DONE]
        assert [one.keys for one in (await rig.view(job.id)).runs] == [("sid-1",)]
