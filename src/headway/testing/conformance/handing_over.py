"""Hand-over: the outside world has the job; it keeps its permits, and never starts twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from headway.contract.outcomes import (
    Closing,
    Died,
    Failed,
    GaveBack,
    HandedOver,
    KnownAs,
    Outcome,
    Returned,
    Snoozed,
    Verdict,
)
from headway.contract.signals import Decided, SignalKind, SignalResult
from headway.contract.views import GatesQuery, JobQuery, JobsQuery
from headway.core.gates.slots import Slots
from headway.core.job import FollowUp, JobPolicy, derived_id, ids_after
from headway.core.state import State
from headway.testing.conformance.rig import ConformanceGroup, Rig, dial, policy_with, take_ids
from headway.testing.conformance.worker import LANE, LEASE_MS, PlayedWorker
from headway.testing.jobs import POLICY

LINE = Slots("line", 1)
TIMEOUT_MS = 1_800_000


class HandOverGroup(ConformanceGroup):
    """A job whose work continues in the outside world while it keeps its permits."""

    async def test_hand_over_commits_the_job_as_awaiting_with_its_deadline(self, rig: Rig) -> None:
        call = await dial(rig)
        view = await rig.view(call.id)
        assert (view.state, view.deadline_at) == (State.AWAITING, rig.clock() + TIMEOUT_MS)
        assert (view.run, view.attempt, view.in_doubt) == (1, 1, False)
        assert view.runs[0].handed_at == rig.clock()
        assert view.runs[0].ended_at is None

    async def test_handed_over_job_keeps_its_permits_until_settled(self, rig: Rig) -> None:
        call = await dial(rig, gates=(LINE,))
        follower = await rig.add(gates=(LINE,))
        await call.worker.report(Returned(call.id, call.run))
        assert await rig.holders("line") == [call.id]
        assert await call.worker.take(5) == []
        await rig.signal(call.key)
        assert await call.worker.take_ids(5) == [follower.id]

    async def test_repeated_hand_over_returns_already_and_does_not_extend(self, rig: Rig) -> None:
        call = await dial(rig)
        async with rig.unchanged():
            rig.clock.advance(500)
            again = HandedOver(call.id, call.run, key=call.key, timeout_ms=TIMEOUT_MS)
            assert await call.worker.report(again) is Verdict.ALREADY

    @pytest.mark.parametrize("policy", [POLICY, policy_with(on_deadline="retry")])
    async def test_hand_over_repeated_after_its_deadline_is_lost(
        self, rig: Rig, policy: JobPolicy
    ) -> None:
        await rig.declare(LINE)
        # Shorter than the worker's lease, so that the lease does not decide.
        timeout_ms = LEASE_MS - 1
        call = await dial(rig, gates=(LINE,), policy=policy, timeout_ms=timeout_ms)
        await rig.pass_time(timeout_ms)
        again = HandedOver(call.id, call.run, key=call.key, timeout_ms=timeout_ms)
        assert await call.worker.report(again) is Verdict.LOST
        assert await rig.used("line") == 0

    async def test_hand_over_repeated_after_the_next_candidate_was_chosen_is_lost(
        self, rig: Rig
    ) -> None:
        policy = policy_with(cascade=True)
        run = await rig.start(candidates=("ann", "bob"), policy=policy, expires_at=None)
        offer = HandedOver(run.id, run.run, key="ann", timeout_ms=LEASE_MS - 1)
        assert await rig.worker.report(offer) is Verdict.DONE
        await rig.pass_time(LEASE_MS - 1)
        assert (await rig.worker.take_one()).candidate == "bob"
        assert await rig.worker.report(offer) is Verdict.LOST

    async def test_hand_over_under_the_key_of_an_earlier_run_is_lost(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key, Decided.RETRY)
        await rig.pass_time(LEASE_MS)
        run = await rig.worker.take_one()
        own = HandedOver(run.id, run.run, key="call-2", timeout_ms=9_000)
        assert await rig.worker.settle(own, own) == [Verdict.DONE, Verdict.ALREADY]
        assert await rig.worker.report(replace(own, key=call.key)) is Verdict.LOST

    async def test_repeat_of_a_hand_over_that_ended_cancelled_is_lost(self, rig: Rig) -> None:
        run = await rig.start()
        await rig.cancel(run.id)
        hand_over = HandedOver(run.id, run.run, key="call", timeout_ms=TIMEOUT_MS)
        assert await rig.worker.report(hand_over) is Verdict.CANCELLED
        assert await rig.worker.report(hand_over) is Verdict.LOST

    async def test_hand_over_that_ends_cancelled_creates_nothing_and_closes_its_gates(
        self, rig: Rig
    ) -> None:
        await rig.declare(LINE)
        run = await rig.start()
        await rig.cancel(run.id)
        message = rig.jobs.make(lane="messages")
        hand_over = HandedOver(
            run.id,
            run.run,
            then=(message,),
            close=(Closing(gate=LINE.name, for_ms=60_000),),
            key="call",
            timeout_ms=TIMEOUT_MS,
        )
        assert await rig.worker.report(hand_over) is Verdict.CANCELLED
        assert await rig.store.read(JobQuery(id=message.id)) is None
        (gate,) = (await rig.store.read(GatesQuery(names=(LINE.name,)))).rows
        assert gate.closed_until == rig.clock() + 60_000

    async def test_return_after_a_hand_over_is_only_recorded(self, rig: Rig) -> None:
        call = await dial(rig)
        assert await call.worker.report(Returned(call.id, call.run, error="oops")) is Verdict.DONE
        assert await rig.state(call.id) is State.AWAITING
        await rig.signal(call.key)
        view = await rig.view(call.id)
        assert (view.state, view.error) == (State.SUCCEEDED, "oops")

    @pytest.mark.parametrize(
        ("outcome", "state"),
        [
            (Failed, State.SCHEDULED),
            (Died, State.DEAD),
            (partial(Snoozed, after_ms=9), State.SCHEDULED),
        ],
    )
    async def test_explicit_outcome_settles_the_awaiting_run(
        self, rig: Rig, outcome: Callable[..., Outcome], state: State
    ) -> None:
        call = await dial(rig, gates=(LINE,))
        assert await call.worker.report(outcome(call.id, call.run)) is Verdict.DONE
        assert await rig.state(call.id) is state
        assert await rig.used("line") == 0
        assert (await rig.signal(call.key)).answer is SignalResult.LATE

    async def test_explicit_outcome_after_the_signal_changes_nothing(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.signal(call.key)
        async with rig.unchanged():
            verdict = await call.worker.report(Failed(call.id, call.run))
            assert verdict in {Verdict.ALREADY, Verdict.LOST}

    async def test_lease_expired_after_hand_over_leaves_the_job_uncertain(self, rig: Rig) -> None:
        call = await dial(rig, gates=(LINE,))
        await rig.pass_time(LEASE_MS + 1)
        view = await rig.view(call.id)
        assert (view.state, view.in_doubt, view.run) == (State.AWAITING, True, 1)
        assert await rig.holders("line") == [call.id]
        assert await rig.worker.take(5) == []
        await rig.signal(call.key)
        view = await rig.view(call.id)
        assert (view.state, view.in_doubt) == (State.SUCCEEDED, False)

    async def test_progress_ends_the_uncertainty_and_nothing_else(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.pass_time(LEASE_MS + 1)
        before = await rig.view(call.id)
        assert before.in_doubt is True
        await rig.signal(call.key, kind=SignalKind.PROGRESS)
        assert await rig.view(call.id) == replace(before, in_doubt=False)

    async def test_worker_without_lease_after_hand_over_can_write_nothing(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.pass_time(LEASE_MS + 1)
        async with rig.unchanged():
            for kind in (Returned, Failed, Died, Snoozed, KnownAs, GaveBack, HandedOver):
                assert await call.worker.report(kind(call.id, call.run)) is Verdict.LOST, kind

    async def test_deadline_makes_the_job_dead_by_default(self, rig: Rig) -> None:
        call = await dial(rig, gates=(LINE,))
        await call.worker.report(Returned(call.id, call.run))
        await rig.pass_time(TIMEOUT_MS - 1)
        assert await rig.state(call.id) is State.AWAITING
        await rig.pass_time(1)
        view = await rig.view(call.id)
        assert view.state is State.DEAD
        assert view.reason
        assert await rig.used("line") == 0

    async def test_deadline_retries_if_the_policy_says_so(self, rig: Rig) -> None:
        call = await dial(rig, policy=policy_with(on_deadline="retry"))
        await rig.pass_time(TIMEOUT_MS)
        view = await rig.view(call.id)
        assert (view.state, view.attempt) == (State.SCHEDULED, 1)
        rig.clock.advance(2_000)
        run = await rig.worker.take_one()
        assert (run.run, run.attempt) == (2, 2)

    async def test_uncertain_job_is_never_started_again_before_its_deadline(self, rig: Rig) -> None:
        call = await dial(rig)
        for _ in range(10):
            await rig.pass_time(TIMEOUT_MS // 11)
            assert await rig.worker.take(5) == []
        assert await rig.state(call.id) is State.AWAITING

    async def test_gate_can_be_given_back_while_the_job_awaits(self, rig: Rig) -> None:
        call = await dial(rig, gates=(LINE,))
        assert await call.worker.report(GaveBack(call.id, call.run, gate="line")) is Verdict.DONE
        assert await rig.used("line") == 0


ASKING = policy_with(reconcile="ask", reconcile_within_ms=10_000)


async def reconcilers(rig: Rig) -> list[str]:
    """Return the ids of the jobs that query the provider, oldest first."""
    return [job.id for job in (await rig.dump()).jobs if job.kind == "ask"]


class ReconcileGroup(ConformanceGroup):
    """A kind whose provider can be queried."""

    @pytest.mark.parametrize("end", [State.DEAD, State.CANCELLED])
    async def test_deadline_reconciles_and_decides_if_there_is_no_answer_in_time(
        self, rig: Rig, end: State
    ) -> None:
        call = await dial(rig, gates=(LINE,), policy=ASKING)
        await call.worker.report(Returned(call.id, call.run))
        if end is State.CANCELLED:
            await rig.cancel(call.id)
        await rig.pass_time(TIMEOUT_MS)
        assert len(await reconcilers(rig)) == 1
        await rig.pass_time(ASKING.reconcile_within_ms - 1)
        assert await rig.state(call.id) is State.AWAITING
        assert await rig.holders("line") == [call.id]
        assert len(await reconcilers(rig)) == 1
        await rig.pass_time(1)
        assert await rig.state(call.id) is end
        assert await rig.used("line") == 0

    @pytest.mark.parametrize("gate", ["all", f"lane:{LANE}", "tenant:acme", "kind:ask"])
    async def test_deadline_waits_while_a_pause_prevents_reconciling(
        self, rig: Rig, gate: str
    ) -> None:
        call = await dial(rig, gates=(LINE,), policy=ASKING)
        await call.worker.report(Returned(call.id, call.run))
        until_at = rig.clock() + TIMEOUT_MS + 3 * ASKING.reconcile_within_ms
        await rig.close_gate(gate, until_at)
        await rig.pass_time(TIMEOUT_MS)
        for _ in range(2):
            await rig.pass_time(ASKING.reconcile_within_ms)
        view = await rig.view(call.id)
        assert view.state is State.AWAITING
        assert view.deadline_at == rig.clock() + ASKING.reconcile_within_ms
        assert await rig.holders("line") == [call.id]
        assert await reconcilers(rig) == []
        await rig.pass_time(ASKING.reconcile_within_ms)
        assert len(await reconcilers(rig)) == 1
        await rig.pass_time(ASKING.reconcile_within_ms)
        assert await rig.state(call.id) is State.DEAD

    async def test_pause_after_the_question_postpones_the_deadline(self, rig: Rig) -> None:
        call = await dial(rig, gates=(LINE,), policy=ASKING)
        await rig.pass_time(TIMEOUT_MS)
        await rig.close_gate("all")
        await rig.pass_time(ASKING.reconcile_within_ms)
        assert await rig.state(call.id) is State.AWAITING
        assert len(await reconcilers(rig)) == 1
        await rig.open_gate("all")
        await rig.pass_time(ASKING.reconcile_within_ms)
        assert await rig.state(call.id) is State.AWAITING
        assert len(await reconcilers(rig)) == 2

    async def test_dead_worker_after_hand_over_reconciles_and_shortens_no_deadline(
        self, rig: Rig
    ) -> None:
        call = await dial(rig, policy=ASKING)
        deadline_at = (await rig.view(call.id)).deadline_at
        await rig.pass_time(LEASE_MS)
        view = await rig.view(call.id)
        assert (view.in_doubt, view.deadline_at) == (True, deadline_at)
        assert len(await reconcilers(rig)) == 1
        run = await rig.worker.take_one()
        assert run.kind == "ask"
        assert call.id.encode() in run.args

    async def test_each_run_is_reconciled(self, rig: Rig) -> None:
        call = await dial(rig, policy=ASKING)
        await rig.pass_time(LEASE_MS + 1)
        await rig.signal(call.key, Decided.RETRY)
        await rig.pass_time(LEASE_MS)
        (run,) = [one for one in await rig.worker.take(9) if one.id == call.id]
        await rig.worker.settle(
            HandedOver(run.id, run.run, key="call-2", timeout_ms=LEASE_MS - 1),
            Returned(run.id, run.run),
        )
        await rig.pass_time(LEASE_MS - 1)
        assert await rig.state(call.id) is State.AWAITING
        assert len(await reconcilers(rig)) == 2

    async def test_reconcile_happens_though_worker_and_deadline_expire_in_one_sweep(
        self, rig: Rig
    ) -> None:
        call = await dial(rig, gates=(LINE,), policy=ASKING)
        await rig.pass_time(TIMEOUT_MS + LEASE_MS)
        assert await rig.state(call.id) is State.AWAITING
        assert await rig.holders("line") == [call.id]
        assert len(await reconcilers(rig)) == 1
        await rig.pass_time(10_000)
        assert await rig.state(call.id) is State.DEAD

    async def test_reconcile_happens_once_though_its_worker_is_swept_in_parts(
        self, rig: Rig
    ) -> None:
        call = await dial(rig, policy=ASKING)
        first = await rig.add(priority=0, expires_at=None)
        assert await call.worker.take_ids() == [first.id]
        rig.clock.advance(TIMEOUT_MS + LEASE_MS)
        for _ in range(4):
            await rig.store.sweep(1)
        assert await rig.state(first.id) is not State.RUNNING
        assert await rig.state(call.id) is State.AWAITING
        assert len(await reconcilers(rig)) == 1

    async def test_reconcile_happens_each_time_though_its_job_ids_are_taken(self, rig: Rig) -> None:
        call = await dial(rig, policy=ASKING)
        first = derived_id("reconcile", call.id, call.run, 1)
        await take_ids(rig, first, *ids_after(first, 2))
        await rig.pass_time(LEASE_MS + 1)
        assert (await rig.view(call.id)).in_doubt
        (asking,) = await reconcilers(rig)
        assert call.id.encode() in (await rig.view(asking)).args

    async def test_reconcile_job_keeps_retrying_however_many_workers_die(self, rig: Rig) -> None:
        patient = policy_with(reconcile="ask", reconcile_within_ms=86_400_000)
        call = await dial(rig, policy=patient)
        await rig.pass_time(LEASE_MS + 1)
        for _ in range(8):
            rig.clock.advance(30_000)
            assert (await rig.new_worker().take_one()).kind == "ask"
            await rig.pass_time(LEASE_MS + 1)
        (asking,) = await reconcilers(rig)
        assert await rig.state(asking) is State.SCHEDULED
        assert await rig.state(call.id) is State.AWAITING

    async def test_answer_running_extends_the_deadline(self, rig: Rig) -> None:
        call = await dial(rig, policy=ASKING)
        await call.worker.report(Returned(call.id, call.run))
        await rig.pass_time(TIMEOUT_MS)
        key = f"{call.id}:{call.run}"
        reply = await rig.signal(key, kind=SignalKind.PROGRESS, extend_ms=90_000)
        assert reply.answer is SignalResult.APPLIED
        await rig.pass_time(89_999)
        assert await rig.state(call.id) is State.AWAITING
        assert (await rig.signal(call.key)).answer is SignalResult.APPLIED

    @pytest.mark.parametrize("extensions", [1, 2])
    async def test_reconcile_happens_again_after_each_extension(
        self, rig: Rig, extensions: int
    ) -> None:
        call = await dial(rig, policy=ASKING)
        await call.worker.report(Returned(call.id, call.run))
        await rig.pass_time(TIMEOUT_MS)
        for asked in range(2, 2 + extensions):
            reply = await rig.signal(call.key, kind=SignalKind.PROGRESS, extend_ms=90_000)
            assert reply.answer is SignalResult.APPLIED
            await rig.pass_time(90_000)
            assert len(await reconcilers(rig)) == asked
            assert await rig.state(call.id) is State.AWAITING
        await rig.pass_time(10_000)
        assert await rig.state(call.id) is State.DEAD
        asking = [json.loads((await rig.view(one)).args) for one in await reconcilers(rig)]
        assert [one["asked"] for one in asking] == list(range(1, 2 + extensions))

    async def test_settled_job_is_not_reconciled(self, rig: Rig) -> None:
        call = await dial(rig, policy=ASKING)
        await rig.signal(call.key)
        await rig.pass_time(TIMEOUT_MS * 2)
        assert await reconcilers(rig) == []

    async def test_end_found_by_reconciling_creates_the_follow_up(self, rig: Rig) -> None:
        follow = FollowUp(kind="alert", states=(State.DEAD,))
        call = await dial(rig, policy=policy_with(reconcile="ask", on_final=follow))
        await rig.pass_time(LEASE_MS + 1)
        await rig.signal(f"{call.id}:{call.run}", Decided.DEAD, reason="carrier lost it")
        kinds = [job.kind for job in (await rig.dump()).jobs]
        assert kinds.count("alert") == 1


MINUTE_MS = 60_000


async def call(worker: PlayedWorker, *keys: str) -> str:
    """Start a run, hand it over, and register further keys for it; return the job's id.

    Args:
        keys: the first is that of the hand-over (default: the run's reference).
    """
    run = await worker.take_one()
    first = keys[0] if keys else f"{run.id}:{run.run}"
    await worker.report(HandedOver(run.id, run.run, key=first, timeout_ms=MINUTE_MS))
    for key in keys[1:]:
        await worker.report(KnownAs(run.id, run.run, key=key))
    await worker.report(Returned(run.id, run.run))
    return run.id


class KnownKeysGroup(ConformanceGroup):
    """Keys by which a provider knows each run."""

    async def test_each_run_lists_its_keys_by_name_without_its_reference(self, rig: Rig) -> None:
        job = await rig.add()
        await call(rig.worker, "sid-b", "sid-ä", "sid-a")
        await rig.signal("sid-a", Decided.RETRY)
        await rig.pass_time(MINUTE_MS)
        await call(rig.worker)
        await rig.signal(f"{job.id}:2", Decided.RETRY)
        await rig.pass_time(MINUTE_MS)
        await call(rig.worker, f"{job.id}:3", "sid-c")
        expected = [("sid-a", "sid-b", "sid-ä"), (), ("sid-c",)]
        assert [run.keys for run in (await rig.view(job.id)).runs] == expected
        await rig.signal("sid-c")
        assert [run.keys for run in (await rig.view(job.id)).runs] == expected

    async def test_listing_with_runs_lists_the_keys_of_each_job(self, rig: Rig) -> None:
        jobs = await rig.add_many(3)
        await call(rig.worker, "one")
        await call(rig.worker, "two", "three")
        page = await rig.store.read(JobsQuery(runs=True))
        found = {view.id: [run.keys for run in view.runs] for view in page.rows}
        assert [found[job.id] for job in jobs] == [[("one",)], [("three", "two")], []]
        bare = await rig.store.read(JobsQuery())
        assert [view.runs for view in bare.rows] == [(), (), ()]

    async def test_key_taken_over_by_a_later_run_belongs_to_that_run_only(self, rig: Rig) -> None:
        job = await rig.add()
        await call(rig.worker, "line-7")
        await rig.signal("line-7", Decided.RETRY)
        await rig.pass_time(MINUTE_MS)
        await call(rig.worker, "line-7")
        assert [run.keys for run in (await rig.view(job.id)).runs] == [(), ("line-7",)]
        await rig.signal("line-7")
        other = await rig.add()
        await call(rig.worker, "line-7")
        assert [run.keys for run in (await rig.view(job.id)).runs] == [(), ()]
        assert [run.keys for run in (await rig.view(other.id)).runs] == [("line-7",)]

    async def test_run_that_never_handed_over_has_no_keys(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.worker.take_and_report(Failed, after_ms=0)
        await rig.worker.take_one()
        assert [run.keys for run in (await rig.view(job.id)).runs] == [(), ()]
