"""Acceptances after which the job continues to await its end."""

from __future__ import annotations

import json

import pytest

from headway.contract.claims import Claimed
from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import Failed, HandedOver, Returned, Verdict
from headway.contract.signals import Decided, SignalKind, SignalResult
from headway.core.cascade import Answer
from headway.core.gates.slots import Slots
from headway.core.job import FollowUp, JobPolicy, NewJob, derived_id
from headway.core.state import State
from headway.testing.conformance.rig import (
    ConformanceGroup,
    Rig,
    SignalFields,
    for_candidate,
    policy_with,
    ref,
)
from headway.testing.conformance.worker import LEASE_MS, PlayedWorker

LOCK = Slots(for_candidate("lock"), 1)
KEPT = policy_with(
    cascade=True,
    reconcile="ask",
    on_final=FollowUp(kind="alert", states=(State.DEAD,)),
    on_accepted=FollowUp(kind="taken", lane="news", states=(), policy=JobPolicy(timeout_ms=70)),
)
OFFER_MS = 300_000
YEAR_MS = 365 * 86_400_000


async def offered(rig: Rig, *candidates: str) -> NewJob:
    """Enqueue a job that awaits its end after its acceptance, with a lock for each candidate."""
    return await rig.add(candidates=candidates, gates=(LOCK,), policy=KEPT, expires_at=None)


async def ask(worker: PlayedWorker) -> Claimed:
    """Start the next turn, and hand over to its candidate; the handler still runs."""
    run = await worker.take_one()
    await worker.report(HandedOver(run.id, run.run, key=ref(run), timeout_ms=OFFER_MS))
    return run


async def accepted(rig: Rig, *candidates: str) -> Claimed:
    """Return a run whose candidate has accepted, and whose handler has returned."""
    await offered(rig, *candidates)
    worker = rig.new_worker()
    run = await ask(worker)
    await worker.report(Returned(run.id, run.run))
    reply = await rig.signal(ref(run), Decided.ACCEPTED, candidate=run.candidate, body=b'{"eta":9}')
    assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.AWAITING)
    return run


class AcceptGroup(ConformanceGroup):
    """A cascade whose policy has an `on_accepted` job."""

    async def test_accepted_job_stays_awaiting_with_permits_and_no_deadline(self, rig: Rig) -> None:
        run = await accepted(rig, "ann", "bob")
        view = await rig.view(run.id)
        assert (view.state, view.deadline_at, view.reason) == (
            State.AWAITING, None, "accepted by ann",
        )  # fmt: skip
        assert (view.result, view.finished_at, view.runs[-1].ended_at) == (b'{"eta":9}', None, None)
        assert view.policy == KEPT
        assert view.cascade is not None
        assert (view.cascade.accepted, view.cascade.left) == ("ann", ("bob",))
        assert view.cascade.asked[-1].answer is Answer.ACCEPTED
        assert await rig.holders("lock:ann") == [run.id]

    async def test_on_accepted_job_is_created_once_in_the_same_step(self, rig: Rig) -> None:
        run = await accepted(rig, "ann", "bob")
        await rig.signal(ref(run), Decided.ACCEPTED, candidate="ann")
        (taken,) = [one for one in (await rig.dump()).jobs if one.kind == "taken"]
        assert taken.id == derived_id("on_accepted", run.id, run.run)
        assert json.loads(taken.args) == {
            "job": run.id, "state": "accepted", "candidate": "ann", "run": run.run,
        }  # fmt: skip
        cause = await rig.view(run.id)
        assert (taken.lane, taken.tenant, taken.subject) == ("news", cause.tenant, cause.subject)
        assert taken.policy == JobPolicy(timeout_ms=70)

    async def test_accepted_job_does_not_time_out(self, rig: Rig) -> None:
        run = await accepted(rig, "ann", "bob")
        assert (await rig.sweep())[-1].next_at != rig.clock() + OFFER_MS
        await rig.pass_time(YEAR_MS)
        view = await rig.view(run.id)
        assert (view.state, view.in_doubt, view.deadline_at) == (State.AWAITING, False, None)
        assert await rig.holders("lock:ann") == [run.id]

    async def test_later_answers_are_late_and_change_nothing(self, rig: Rig) -> None:
        run = await accepted(rig, "ann", "bob")
        before = await rig.view(run.id)
        for decided in (Decided.ACCEPTED, Decided.DECLINED):
            for candidate in ("ann", "bob", ""):
                reply = await rig.signal(ref(run), decided, candidate=candidate, body=b"{}")
                assert (reply.answer, reply.state) == (SignalResult.LATE, State.AWAITING)
        assert await rig.view(run.id) == before

    @pytest.mark.parametrize("kind", [SignalKind.FINAL, SignalKind.PROGRESS])
    async def test_offer_signal_after_acceptance_is_late(self, rig: Rig, kind: SignalKind) -> None:
        run = await accepted(rig, "ann", "bob")
        reply = await rig.signal(ref(run), Decided.DEAD, kind=kind, offer=True)
        assert reply.answer is SignalResult.LATE
        assert await rig.state(run.id) is State.AWAITING

    async def test_offer_signal_before_acceptance_counts(self, rig: Rig) -> None:
        job = await offered(rig, "ann", "bob")
        run = await ask(rig.worker)
        reply = await rig.signal(ref(run), Decided.DEAD, reason="rude", offer=True)
        assert reply.answer is SignalResult.APPLIED
        assert await rig.state(job.id) is State.DEAD

    async def test_progress_of_an_accepted_job_sets_no_deadline(self, rig: Rig) -> None:
        run = await accepted(rig, "ann", "bob")
        progress = SignalFields(kind=SignalKind.PROGRESS, extend_ms=60, body=b'{"km":3}')
        assert (await rig.signal(ref(run), **progress)).answer is SignalResult.APPLIED
        await rig.pass_time(61)
        view = await rig.view(run.id)
        assert (view.state, view.deadline_at, view.progress) == (State.AWAITING, None, b'{"km":3}')

    async def test_final_signal_ends_an_accepted_job_and_releases_its_permits(
        self, rig: Rig
    ) -> None:
        run = await accepted(rig, "ann", "bob")
        reply = await rig.signal(ref(run), body=b'{"done":1}')
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.SUCCEEDED)
        view = await rig.view(run.id)
        assert (view.reason, view.result) == ("accepted by ann", b'{"done":1}')
        assert await rig.used("lock:ann") == 0

    async def test_final_signal_can_end_an_accepted_job_as_dead_with_its_follow_up(
        self, rig: Rig
    ) -> None:
        run = await accepted(rig, "ann", "bob")
        await rig.signal(ref(run), Decided.DEAD, reason="house burnt down")
        view = await rig.view(run.id)
        assert (view.state, view.reason) == (State.DEAD, "house burnt down")
        assert [one.kind for one in (await rig.dump()).jobs].count("alert") == 1
        assert await rig.used("lock:ann") == 0

    async def test_final_retry_of_an_accepted_job_asks_the_other_candidates(self, rig: Rig) -> None:
        run = await accepted(rig, "ann", "bob")
        reply = await rig.signal(ref(run), Decided.RETRY, after_ms=0, reason="ill")
        assert reply.state == State.WAITING
        view = await rig.view(run.id)
        assert (view.result, await rig.used("lock:ann")) == (None, 0)
        following = await ask(rig.new_worker())
        assert (following.id, following.candidate) == (run.id, "bob")
        cascade = await rig.cascade(run.id)
        assert cascade.accepted == ""
        reply = await rig.signal(ref(following), Decided.ACCEPTED, candidate="bob")
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.AWAITING)
        kinds = [one.kind for one in (await rig.dump()).jobs]
        assert kinds.count("taken") == 2

    async def test_final_retry_without_candidates_left_is_exhausted(self, rig: Rig) -> None:
        run = await accepted(rig, "ann")
        reply = await rig.signal(ref(run), Decided.RETRY)
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.DEAD)
        assert (await rig.view(run.id)).reason == "exhausted"
        assert [one.kind for one in (await rig.dump()).jobs].count("alert") == 1
        assert await rig.used("lock:ann") == 0

    async def test_worker_death_after_acceptance_leaves_the_job_certain(self, rig: Rig) -> None:
        await offered(rig, "ann", "bob")
        run = await ask(rig.worker)
        await rig.signal(ref(run), Decided.ACCEPTED)
        await rig.pass_time(LEASE_MS)
        view = await rig.view(run.id)
        assert (view.state, view.in_doubt, view.deadline_at) == (State.AWAITING, False, None)
        assert "ask" not in [one.kind for one in (await rig.dump()).jobs]
        assert (await rig.signal(ref(run))).answer is SignalResult.APPLIED

    async def test_acceptance_clears_uncertainty_from_an_earlier_worker_death(
        self, rig: Rig
    ) -> None:
        await offered(rig, "ann", "bob")
        run = await ask(rig.worker)
        await rig.pass_time(LEASE_MS)
        assert (await rig.view(run.id)).in_doubt
        await rig.signal(ref(run), Decided.ACCEPTED)
        await rig.pass_time(YEAR_MS)
        view = await rig.view(run.id)
        assert (view.state, view.in_doubt) == (State.AWAITING, False)

    async def test_explicit_retry_of_an_accepted_run_ends_the_acceptance(self, rig: Rig) -> None:
        await offered(rig, "ann", "bob")
        run = await ask(rig.worker)
        await rig.signal(ref(run), Decided.ACCEPTED)
        assert await rig.worker.report(Failed(run.id, run.run, after_ms=0)) is Verdict.DONE
        assert (await rig.worker.take_one()).candidate == "bob"

    @pytest.mark.parametrize("decided", [Decided.SUCCEEDED, Decided.DEAD, Decided.RETRY])
    async def test_cancel_request_ends_an_accepted_job_at_its_next_final_signal(
        self, rig: Rig, decided: Decided
    ) -> None:
        run = await accepted(rig, "ann", "bob")
        assert await rig.cancel(run.id) == [Acted.ASKED]
        assert (await rig.view(run.id)).cancel_requested
        assert await rig.holders("lock:ann") == [run.id]
        reply = await rig.signal(ref(run), decided)
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.CANCELLED)
        assert await rig.used("lock:ann") == 0

    async def test_acceptance_after_a_cancel_request_ends_the_job_without_follow_ups(
        self, rig: Rig
    ) -> None:
        job = await offered(rig, "ann", "bob")
        run = await ask(rig.new_worker())
        await rig.cancel(job.id)
        reply = await rig.signal(ref(run), Decided.ACCEPTED)
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.CANCELLED)
        assert "taken" not in [one.kind for one in (await rig.dump()).jobs]

    @pytest.mark.parametrize(
        ("verb", "state"), [(Verb.KILL, State.DEAD), (Verb.SUCCEED, State.SUCCEEDED)]
    )
    async def test_operator_can_end_an_accepted_job_at_once(
        self, rig: Rig, verb: Verb, state: State
    ) -> None:
        run = await accepted(rig, "ann", "bob")
        assert await rig.act(verb, run.id) == [Acted.DONE]
        assert await rig.state(run.id) is state
        assert await rig.used("lock:ann") == 0

    async def test_retried_job_asks_the_given_candidates_again(self, rig: Rig) -> None:
        run = await accepted(rig, "ann", "bob")
        await rig.act(Verb.KILL, run.id)
        edit = Edit(candidates=("cid", "ann"))
        assert await rig.act(Verb.RETRY, run.id, edit=edit) == [Acted.DONE]
        cascade = await rig.cascade(run.id)
        assert (cascade.left, cascade.asked, cascade.accepted) == (
            ("cid", "ann"), (), "",
        )  # fmt: skip
        assert (await rig.worker.take_one()).candidate == "cid"

    async def test_acceptance_before_the_hand_over_is_applied_with_it(self, rig: Rig) -> None:
        await offered(rig, "ann", "bob")
        run = await rig.worker.take_one()
        reply = await rig.signal(ref(run), Decided.ACCEPTED, candidate="ann")
        assert reply.answer is SignalResult.KEPT
        await rig.worker.report(HandedOver(run.id, run.run, key=ref(run), timeout_ms=OFFER_MS))
        view = await rig.view(run.id)
        assert (view.state, view.deadline_at) == (State.AWAITING, None)
        assert [one.kind for one in (await rig.dump()).jobs].count("taken") == 1

    async def test_accepted_job_shows_who_accepted_it_and_what_it_awaits(self, rig: Rig) -> None:
        run = await accepted(rig, "ann", "bob")
        rig.clock.advance(60_000)
        assert (await rig.why(run.id)).sentence == (
            "awaiting: accepted by ann 1m ago, awaits its end"
        )
        await rig.cancel(run.id)
        assert (await rig.why(run.id)).sentence.endswith("; a cancel was requested")
