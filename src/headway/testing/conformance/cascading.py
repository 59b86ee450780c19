"""Cascades: one outstanding offer, one acceptance, and an alert when they are exhausted."""

from __future__ import annotations

import json
from functools import partial

import pytest

from headway.contract.claims import Claimed
from headway.contract.operate import Edit, Verb
from headway.contract.outcomes import (
    Failed,
    FoundUnfit,
    HandedOver,
    NextStage,
    Released,
    Returned,
    Succeeded,
)
from headway.contract.signals import Decided, SignalResult
from headway.core.cascade import Answer
from headway.core.errors import InvalidValue
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.core.job import MAX_REASON, FollowUp, NewJob
from headway.core.state import State
from headway.testing.conformance.rig import ConformanceGroup, Rig, for_candidate, policy_with, ref
from headway.testing.conformance.worker import LEASE_MS, PlayedWorker
from headway.testing.jobs import use_of

TECH = Slots(for_candidate("tech"), 1)
OFFER = policy_with(cascade=True, on_final=FollowUp(kind="alert", states=(State.DEAD,)))
OFFER_MS = 300_000


async def add_cascade(rig: Rig, *candidates: str, priority: int = 1) -> NewJob:
    """Enqueue a job that is offered to candidates, with a lock for each."""
    return await rig.add(
        candidates=candidates,
        gates=(TECH,),
        policy=OFFER,
        priority=priority,
        expires_at=None,
    )


async def offer(worker: PlayedWorker) -> Claimed:
    """Start the next turn, and hand over to its candidate."""
    run = await worker.take_one()
    await worker.report(HandedOver(run.id, run.run, key=ref(run), timeout_ms=OFFER_MS))
    await worker.report(Returned(run.id, run.run))
    return run


class CascadeGroup(ConformanceGroup):
    """A job that is offered to one candidate after another."""

    async def test_turn_names_its_candidate_and_holds_its_lock(self, rig: Rig) -> None:
        job = await add_cascade(rig, "ann", "bob")
        run = await offer(rig.worker)
        assert (run.candidate, run.run, run.attempt, run.gated) == ("ann", 1, 1, True)
        assert await rig.holders("tech:ann") == [job.id]
        view = await rig.view(job.id)
        assert view.cascade is not None
        assert (view.cascade.turn, view.cascade.asked) == ("ann", ())
        assert (view.runs[0].candidate, view.state) == ("ann", State.AWAITING)

    async def test_cascade_without_gates_asks_candidates_in_order(self, rig: Rig) -> None:
        jobs = [
            await rig.add(candidates=("ann", "bob"), policy=OFFER, expires_at=None)
            for _ in range(2)
        ]
        runs = await rig.worker.take(2)
        assert [(run.id, run.candidate) for run in runs] == [(job.id, "ann") for job in jobs]
        await rig.worker.settle(*(FoundUnfit(run.id, run.run) for run in runs))
        assert [run.candidate for run in await rig.worker.take(2)] == ["bob", "bob"]

    async def test_accept_settles_the_job_and_releases_the_lock(self, rig: Rig) -> None:
        job = await add_cascade(rig, "ann", "bob")
        run = await offer(rig.worker)
        reply = await rig.signal(ref(run), Decided.ACCEPTED, candidate="ann")
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.SUCCEEDED)
        (asked,) = (await rig.cascade(job.id)).asked
        assert (asked.candidate, asked.answer, asked.at) == ("ann", Answer.ACCEPTED, rig.clock())
        assert await rig.used("tech:ann") == 0

    async def test_decline_moves_on_at_once_as_a_new_run_of_the_same_attempt(
        self, rig: Rig
    ) -> None:
        job = await add_cascade(rig, "ann", "bob")
        run = await offer(rig.worker)
        reply = await rig.signal(ref(run), Decided.DECLINED, candidate="ann", reason="busy")
        assert (reply.answer, reply.state) == (SignalResult.APPLIED, State.WAITING)
        run = await offer(rig.worker)
        assert (run.candidate, run.run, run.attempt) == ("bob", 2, 1)
        (asked,) = (await rig.cascade(job.id)).asked
        assert (asked.candidate, asked.answer, asked.reason) == ("ann", "declined", "busy")
        assert (await rig.used("tech:ann"), await rig.used("tech:bob")) == (0, 1)

    async def test_unanswered_offer_moves_on_at_its_deadline(self, rig: Rig) -> None:
        job = await add_cascade(rig, "ann", "bob")
        await offer(rig.worker)
        await rig.pass_time(OFFER_MS - 1)
        assert await rig.worker.take(5) == []
        await rig.pass_time(1)
        run = await offer(rig.worker)
        assert (run.candidate, run.attempt) == ("bob", 1)
        assert [one.answer for one in (await rig.cascade(job.id)).asked] == [Answer.TIMEOUT]

    @pytest.mark.parametrize("reason", ["off duty", "é" * (MAX_REASON + 1)], ids=["short", "long"])
    async def test_unfit_candidate_is_skipped_with_its_reason(self, rig: Rig, reason: str) -> None:
        job = await add_cascade(rig, "ann", "bob")
        await rig.worker.take_and_report(FoundUnfit, reason=reason)
        run = await rig.worker.take_one()
        assert (run.candidate, run.run, run.attempt) == ("bob", 2, 1)
        (asked,) = (await rig.cascade(job.id)).asked
        assert (asked.answer, asked.reason) == (Answer.UNFIT, reason[:MAX_REASON])

    @pytest.mark.parametrize("way", ["declined", "timeout", "unfit"])
    async def test_exhausted_cascade_is_dead_and_creates_its_alert_in_the_same_step(
        self, rig: Rig, way: str
    ) -> None:
        job = await add_cascade(rig, "ann", "bob")
        for _ in range(2):
            if way == "unfit":
                run = await rig.worker.take_and_report(FoundUnfit)
                continue
            run = await offer(rig.worker)
            if way == "declined":
                await rig.signal(ref(run), Decided.DECLINED)
            else:
                await rig.pass_time(OFFER_MS)
        view = await rig.view(job.id)
        assert (view.state, view.reason) == (State.DEAD, "exhausted")
        (alert,) = [one for one in (await rig.dump()).jobs if one.kind == "alert"]
        alerted = json.loads(alert.args)
        assert (alerted["job"], alerted["reason"]) == (job.id, "exhausted")
        assert (await rig.used("tech:ann"), await rig.used("tech:bob")) == (0, 0)

    async def test_cascade_without_candidates_is_exhausted_at_once(self, rig: Rig) -> None:
        job = await add_cascade(rig)
        assert job.id not in await rig.worker.take_ids(5)
        await rig.sweep()
        view = await rig.view(job.id)
        assert (view.state, view.reason) == (State.DEAD, "exhausted")
        assert [one.kind for one in (await rig.dump()).jobs].count("alert") == 1

    async def test_lost_worker_repeats_the_turn_and_skips_nobody(self, rig: Rig) -> None:
        await add_cascade(rig, "ann", "bob")
        run = await rig.worker.take_one()
        await rig.pass_time(LEASE_MS)
        rig.clock.advance(10_000)
        again = await rig.new_worker().take_one()
        assert (run.candidate, again.candidate) == ("ann", "ann")

    async def test_released_and_failed_turns_are_repeated(self, rig: Rig) -> None:
        job = await add_cascade(rig, "ann", "bob")
        await rig.worker.take_and_report(Released)
        run = await rig.worker.take_one()
        assert run.candidate == "ann"
        await rig.worker.report(Failed(run.id, run.run, after_ms=0))
        run = await rig.worker.take_one()
        assert run.candidate == "ann"
        assert (await rig.cascade(job.id)).asked == ()

    async def test_interrupted_turn_is_repeated_even_if_an_earlier_candidate_is_free(
        self, rig: Rig
    ) -> None:
        await add_cascade(rig, "ann", priority=0)
        await add_cascade(rig, "ann", "bob")
        holder = await offer(rig.worker)
        run = await rig.worker.take_one()
        assert run.candidate == "bob"
        await rig.signal(ref(holder), Decided.ACCEPTED)
        await rig.worker.report(Released(run.id, run.run))
        again = await rig.worker.take_one()
        assert (again.id, again.candidate) == (run.id, "bob")

    async def test_busy_candidate_is_asked_after_the_others(self, rig: Rig) -> None:
        first = await add_cascade(rig, "ann", priority=0)
        await add_cascade(rig, "ann", "bob", "cid")
        holder = await offer(rig.worker)
        assert (holder.id, holder.candidate) == (first.id, "ann")
        run = await offer(rig.worker)
        assert run.candidate == "bob"
        await rig.signal(ref(run), Decided.DECLINED)
        run = await offer(rig.worker)
        assert run.candidate == "cid"
        await rig.signal(ref(holder), Decided.ACCEPTED)
        await rig.signal(ref(run), Decided.DECLINED)
        run = await offer(rig.worker)
        assert run.candidate == "ann"

    async def test_cascades_of_many_flows_share_their_candidates(self, rig: Rig) -> None:
        jobs = [
            await rig.add(candidates=("ann", "bob"), gates=(TECH,), policy=OFFER, tenant=f"t{flow}")
            for flow in range(40)
        ]
        runs = await rig.worker.take(5)
        asked = [(run.id, run.candidate) for run in runs]
        assert asked == [(jobs[0].id, "ann"), (jobs[1].id, "bob")]
        assert set(await rig.states(*jobs[2:])) == {State.PARKED}

    async def test_cascade_waits_only_if_all_remaining_candidates_are_busy(self, rig: Rig) -> None:
        await add_cascade(rig, "ann", priority=0)
        job = await add_cascade(rig, "ann")
        holder = await offer(rig.worker)
        assert await rig.worker.take(5) == []
        assert await rig.state(job.id) is State.PARKED
        await rig.signal(ref(holder), Decided.ACCEPTED)
        run = await offer(rig.worker)
        assert (run.id, run.candidate) == (job.id, "ann")

    @pytest.mark.parametrize("candidates", [("ann", "bob"), ("bob", "ann")])
    async def test_cascade_waits_for_a_busy_candidate_not_for_an_impossible_one(
        self, rig: Rig, candidates: tuple[str, str]
    ) -> None:
        await add_cascade(rig, "bob", priority=0)
        await rig.cap("tech:ann", 0)
        job = await add_cascade(rig, *candidates)
        holder = await offer(rig.worker)
        assert await rig.worker.take(5) == []
        assert (await rig.view(job.id)).parked_at == "tech:bob"
        await rig.signal(ref(holder), Decided.ACCEPTED)
        run = await offer(rig.worker)
        assert (run.id, run.candidate) == (job.id, "bob")

    async def test_cascade_parked_at_one_candidate_moves_to_another_that_is_free(
        self, rig: Rig
    ) -> None:
        await add_cascade(rig, "ann", priority=0)
        await add_cascade(rig, "bob", priority=0)
        job = await add_cascade(rig, "ann", "bob")
        ann, bob = await offer(rig.worker), await offer(rig.worker)
        assert await rig.worker.take(5) == []
        await rig.signal(ref(ann), Decided.ACCEPTED)
        run = await offer(rig.worker)
        assert (run.id, run.candidate) == (job.id, "ann")
        await rig.signal(ref(run), Decided.DECLINED)
        assert await rig.worker.take(5) == []
        await rig.signal(ref(bob), Decided.ACCEPTED)
        run = await offer(rig.worker)
        assert run.candidate == "bob"

    async def test_candidate_never_has_two_open_offers(self, rig: Rig) -> None:
        for _ in range(5):
            await add_cascade(rig, "ann", "bob")
        runs = await rig.worker.take(9)
        assert sorted(run.candidate for run in runs) == ["ann", "bob"]

    async def test_retry_asks_all_candidates_again_in_their_order(self, rig: Rig) -> None:
        job = await add_cascade(rig, "ann", "bob", "eve")
        run = await offer(rig.worker)
        await rig.signal(ref(run), Decided.DECLINED)
        await offer(rig.worker)
        await rig.act(Verb.KILL, job.id)
        await rig.act(Verb.RETRY, job.id)
        assert (await rig.cascade(job.id)).left == ("ann", "bob", "eve")
        assert (await rig.worker.take_one()).candidate == "ann"

    async def test_late_acceptance_gets_a_definite_answer(self, rig: Rig) -> None:
        job = await add_cascade(rig, "ann", "bob")
        first = await offer(rig.worker)
        await rig.pass_time(OFFER_MS)
        assert (await rig.signal(ref(first), Decided.ACCEPTED)).answer is SignalResult.LATE
        second = await offer(rig.worker)
        assert (await rig.signal(ref(first), Decided.ACCEPTED)).answer is SignalResult.LATE
        assert (await rig.signal(ref(second), Decided.ACCEPTED)).answer is SignalResult.APPLIED
        assert (await rig.signal(ref(second), Decided.ACCEPTED)).answer is SignalResult.LATE
        cascade = await rig.cascade(job.id)
        assert [one.answer for one in cascade.asked] == [Answer.TIMEOUT, Answer.ACCEPTED]

    async def test_acceptance_by_someone_not_asked_is_late(self, rig: Rig) -> None:
        job = await add_cascade(rig, "ann", "bob")
        run = await offer(rig.worker)
        reply = await rig.signal(ref(run), Decided.ACCEPTED, candidate="bob")
        assert reply.answer is SignalResult.LATE
        assert await rig.state(job.id) is State.AWAITING
        assert (await rig.signal(ref(run), Decided.ACCEPTED, candidate="ann")).answer == "applied"

    async def test_one_of_simultaneous_answers_wins(self, rig: Rig) -> None:
        job = await add_cascade(rig, "ann", "bob")
        run = await offer(rig.new_worker())
        answers = [
            (await rig.signal(ref(run), decided)).answer
            for decided in (Decided.ACCEPTED, Decided.DECLINED, Decided.ACCEPTED)
        ]
        assert answers == [SignalResult.APPLIED, SignalResult.LATE, SignalResult.LATE]
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_cascade_with_a_cancel_request_ends_cancelled_at_the_answer(
        self, rig: Rig
    ) -> None:
        job = await add_cascade(rig, "ann", "bob")
        run = await offer(rig.worker)
        await rig.cancel(job.id)
        await rig.signal(ref(run), Decided.DECLINED)
        assert await rig.state(job.id) is State.CANCELLED
        assert await rig.used("tech:ann") == 0

    async def test_at_most_one_offer_is_outstanding(self, rig: Rig) -> None:
        job = await add_cascade(rig, *"abcdef")
        for _ in range(5):
            run = await offer(rig.worker)
            assert await rig.worker.take(5) == []
            assert await rig.holders(f"tech:{run.candidate}") == [job.id]
            await rig.signal(ref(run), Decided.DECLINED)
        ended = [one.ended_at for one in (await rig.view(job.id)).runs]
        assert ended.count(None) == 0

    async def test_candidate_turn_can_end_the_job_by_its_run(self, rig: Rig) -> None:
        job = await add_cascade(rig, "ann", "bob")
        await rig.worker.take_and_report(Succeeded)
        assert await rig.state(job.id) is State.SUCCEEDED

    async def test_gates_that_are_one_in_the_turn_of_a_candidate_are_refused(
        self, rig: Rig
    ) -> None:
        lead = Slots("tech:{lead}", 1)
        await rig.declare(TECH, lead)
        of_ann, of_bob, of_dan = (
            (use_of(TECH), use_of(lead, lead=name), use_of(lead, lead="cleo"))
            for name in ("ann", "bob", "dan")
        )
        twice = partial(rig.refuses, InvalidValue, match="names a gate twice")
        async with twice():
            await rig.add(candidates=("bob", "ann"), gates=of_ann, policy=OFFER, expires_at=None)
        job = await rig.add(candidates=("bob",), gates=of_ann, policy=OFFER, expires_at=None)
        for edit in (Edit(candidates=("dan", "ann")), Edit(gates=of_bob)):
            async with twice():
                await rig.act(Verb.EDIT, job.id, edit=edit)
        await rig.act(Verb.EDIT, job.id, edit=Edit(candidates=("dan", "ann"), gates=of_bob))
        run = await rig.worker.take_one()
        assert run.candidate == "dan"
        async with twice():
            await rig.worker.settle(NextStage(run.id, run.run, stage="call", gates=of_ann))
        await rig.worker.settle(NextStage(run.id, run.run, stage="call", gates=of_bob))
        await rig.worker.take_and_report(FoundUnfit)
        run = await rig.worker.take_one()
        assert run.candidate == "ann"
        async with twice():
            # An operator's retry would ask dan again.
            await rig.worker.settle(NextStage(run.id, run.run, stage="text", gates=of_dan))

    @pytest.mark.parametrize(
        ("own", "other", "name", "match"),
        [
            (TECH, Rate("tech:ann", 1, "10s"), "ann", "has the same name as the rate 'tech:ann'"),
            (TECH, Slots("tech:{a}n", 1, shared=True), "ann", "has the same name as the slots"),
            (Slots("{candidate}", 1), Pool("a", {"n": 1}), "a/n", "as a member of the pool 'a'"),
            (Slots("{candidate}", 1), TECH, "all", "is an implicit gate"),
            (Slots("la{candidate}", 1), TECH, "ne:calls", "is an implicit gate"),
            (Slots(for_candidate("longer"), 1), TECH, "x" * 506, "gate has 513 characters"),
        ],
    )
    async def test_candidate_that_gives_a_gate_the_name_of_another_is_refused(
        self, rig: Rig, own: GateSpec, other: GateSpec, name: str, match: str
    ) -> None:
        await rig.declare(own, other)
        gates = (use_of(own),)
        job = await rig.add(candidates=("bob",), gates=gates, policy=OFFER, expires_at=None)
        async with rig.refuses(InvalidValue, match=match):
            await rig.add(candidates=("bob", name), gates=gates, policy=OFFER, expires_at=None)
        async with rig.refuses(InvalidValue, match=match):
            await rig.act(Verb.EDIT, job.id, edit=Edit(candidates=(name,)))
        assert (await rig.worker.take_one()).candidate == "bob"
