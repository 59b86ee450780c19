"""Follow-up jobs (`then`, `on_final`) are created in the step that ends a job, even in a sweep."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from headway.contract.definitions import DeclareLane, LaneSpec
from headway.contract.operate import Verb
from headway.contract.outcomes import (
    Closing,
    Died,
    Failed,
    HandedOver,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Verdict,
)
from headway.contract.signals import Decided
from headway.contract.views import JobView
from headway.core.errors import IdConflict
from headway.core.gates.slots import Slots
from headway.core.job import (
    DEFAULT_POLICY,
    FollowUp,
    JobPolicy,
    NewJob,
    derived_id,
    ids_after,
)
from headway.core.state import FINAL, State
from headway.testing.conformance.rig import SHORT, ConformanceGroup, Rig, policy_with, take_ids
from headway.testing.conformance.worker import LANE, LEASE_MS

LINE = Slots("line", 1)
ALERT = policy_with(on_final=FollowUp(kind="alert", states=(State.DEAD,)))
ALWAYS = policy_with(on_final=FollowUp(kind="alert", lane="alerts", states=tuple(sorted(FINAL))))


async def followers(rig: Rig) -> list[JobView]:
    """Return the follow-up jobs, oldest first."""
    return [job for job in (await rig.dump()).jobs if job.kind == "alert"]


async def by_dying(rig: Rig, _: NewJob) -> None:
    """Let its run report that it wants no further attempt."""
    await rig.new_worker().take_and_report(Died, reason="bad")


async def by_using_up_its_attempts(rig: Rig, _: NewJob) -> None:
    """Let all its attempts fail."""
    worker = rig.new_worker()
    for _attempt in range(3):
        await worker.take_and_report(Failed, after_ms=0)


async def by_expiring_in_a_sweep(rig: Rig, _: NewJob) -> None:
    """Let it expire before it starts."""
    await rig.pass_time(60_001)


async def by_losing_its_last_lease(rig: Rig, _: NewJob) -> None:
    """Let the worker of each attempt die."""
    for _attempt in range(3):
        await rig.new_worker().take_one()
        await rig.pass_time(LEASE_MS)
        rig.clock.advance(10_000)


async def by_its_deadline(rig: Rig, _: NewJob) -> None:
    """Hand it over, and let its deadline pass."""
    await rig.new_worker().take_and_report(HandedOver, key="k", timeout_ms=9_000)
    await rig.pass_time(9_000)


async def by_a_signal(rig: Rig, _: NewJob) -> None:
    """Hand it over, and send a final signal."""
    await rig.new_worker().take_and_report(HandedOver, key="k", timeout_ms=9_000)
    await rig.signal("k", Decided.DEAD)


async def by_an_operator(rig: Rig, job: NewJob) -> None:
    """End it as an operator."""
    await rig.act(Verb.KILL, job.id)


WAYS: list[Callable[[Rig, NewJob], Awaitable[None]]] = [
    by_dying, by_using_up_its_attempts, by_expiring_in_a_sweep, by_losing_its_last_lease,
    by_its_deadline, by_a_signal, by_an_operator,
]  # fmt: skip


class FollowGroup(ConformanceGroup):
    """No failure can come between the end of a job and the creation of its follow-up."""

    @pytest.mark.parametrize("others", [0, 5], ids=["ids are free", "ids are taken"])
    @pytest.mark.parametrize("end", WAYS, ids=lambda end: end.__name__)
    async def test_on_final_job_is_created_however_the_job_becomes_dead(
        self, rig: Rig, end: Callable[[Rig, NewJob], Awaitable[None]], others: int
    ) -> None:
        job = await rig.add(policy=ALERT, expires_at=rig.clock() + 60_000)
        first = derived_id("on_final", job.id, 1)
        taken = [first, *ids_after(first, 4)][:others]
        await take_ids(rig, *taken)
        await end(rig, job)
        view = await rig.view(job.id)
        assert view.state is State.DEAD
        (alert,) = await followers(rig)
        assert (alert.lane, alert.tenant, alert.state) == (LANE, "acme", State.WAITING)
        alerted = json.loads(alert.args)
        assert alerted == {"job": job.id, "state": "dead", "reason": view.reason}
        assert alert.id not in taken
        assert [(await rig.view(one)).kind for one in taken] == ["other"] * others

    async def test_follow_ups_of_one_request_are_created_in_order(self, rig: Rig) -> None:
        await rig.add_many(4, policy=ALWAYS)
        runs = await rig.worker.take(4)
        ends: list[type[Succeeded | Died]] = [Succeeded, Died, Succeeded, Died]
        await rig.worker.settle(
            *(end(run.id, run.run) for end, run in zip(ends, runs, strict=True))
        )
        causes = [json.loads(job.args)["job"] for job in await followers(rig)]
        assert causes == [run.id for run in runs]

    async def test_on_final_job_is_created_only_for_its_states(self, rig: Rig) -> None:
        await rig.add_many(2, policy=ALERT)
        one, two = await rig.worker.take(2)
        await rig.worker.finish(one)
        await rig.cancel(two.id)
        await rig.worker.report(Released(two.id, two.run))
        assert await rig.state(two.id) is State.CANCELLED
        assert await followers(rig) == []

    async def test_on_final_job_uses_the_lane_given_for_each_final_state(self, rig: Rig) -> None:
        jobs = await rig.add_many(3, policy=ALWAYS)
        one, two = await rig.worker.take(2)
        await rig.worker.settle(Succeeded(one.id, one.run), Died(two.id, two.run))
        await rig.cancel(jobs[2].id)
        alerted = [json.loads(alert.args) for alert in await followers(rig)]
        assert {(one["job"], one["state"]) for one in alerted} == {
            (jobs[0].id, "succeeded"), (jobs[1].id, "dead"), (jobs[2].id, "cancelled"),
        }  # fmt: skip
        assert len(await rig.worker.take(9, "alerts")) == 3

    async def test_follow_ups_in_a_row_have_the_policies_given_for_them(self, rig: Rig) -> None:
        third = FollowUp(kind="third", states=(State.DEAD, State.CANCELLED))
        second = FollowUp(kind="second", lane="alerts", policy=policy_with(on_final=third))
        last = JobPolicy(keep_ms=9_000, timeout_ms=70, reconcile="ask", on_final=second)
        first = FollowUp(kind="first", policy=last)
        await rig.add(policy=policy_with(on_final=first))
        found, lane = dict[str, JobPolicy](), LANE
        for kind in ("first", "second", "third"):
            run = await rig.worker.take_one(lane)
            await rig.worker.report(Died(run.id, run.run, reason="bad"))
            (made,) = [one for one in (await rig.dump()).jobs if one.kind == kind]
            found[kind], lane = made.policy, made.lane
        assert lane == "alerts"
        assert found == {
            "first": last,
            "second": policy_with(on_final=third),
            "third": DEFAULT_POLICY,
        }

    async def test_on_final_job_is_created_once_per_life(self, rig: Rig) -> None:
        job = await rig.add(policy=ALERT)
        for lives in (1, 2):
            await rig.act(Verb.KILL, job.id)
            assert len(await followers(rig)) == lives
            await rig.act(Verb.RETRY, job.id)
            await rig.sweep()
        assert len(await followers(rig)) == 2

    async def test_on_final_job_is_created_even_if_its_lane_is_full(self, rig: Rig) -> None:
        job = await rig.add(policy=ALWAYS)
        await rig.define(DeclareLane(spec=LaneSpec(name="alerts", max_backlog=0)))
        await rig.act(Verb.KILL, job.id)
        assert len(await followers(rig)) == 1

    async def test_on_final_job_is_created_even_if_an_identical_job_exists(self, rig: Rig) -> None:
        job = await rig.add(policy=ALERT)
        first = derived_id("on_final", job.id, 1)
        await take_ids(rig, first)
        body = {"job": job.id, "state": "dead", "reason": "bad"}
        (second,) = ids_after(first, 1)
        await rig.add(
            id=second,
            kind="alert",
            subject=job.subject,
            args=json.dumps(body, separators=(",", ":")).encode(),
            due_at=rig.clock() + 9_000,
            key=None,
        )
        await by_dying(rig, job)
        made = [alert.id for alert in await followers(rig)]
        assert len(made) == 2
        assert second in made

    async def test_follow_up_of_an_empty_cascade_is_created_even_if_its_id_is_taken(
        self, rig: Rig
    ) -> None:
        policy = policy_with(cascade=True, on_final=FollowUp(kind="alert"))
        offer = rig.jobs.make(policy=policy, candidates=())
        await take_ids(rig, derived_id("on_final", offer.id, 1))
        assert [one.created for one in await rig.enqueue(offer)] == [True]
        assert await rig.state(offer.id) is State.DEAD
        assert len(await followers(rig)) == 1

    async def test_then_job_with_a_taken_id_refuses_the_settlement(self, rig: Rig) -> None:
        run = await rig.start(policy=ALWAYS)
        child = rig.jobs.make(kind="alert")
        await take_ids(rig, child.id)
        with pytest.raises(IdConflict, match=child.id):
            await rig.worker.report(Succeeded(run.id, run.run, then=(child,)))
        assert await rig.state(run.id) is State.RUNNING
        assert await followers(rig) == []
        assert await rig.worker.finish(run) == [Verdict.DONE]
        assert len(await followers(rig)) == 1

    async def test_retried_job_creates_no_follow_up_yet(self, rig: Rig) -> None:
        await rig.add(policy=ALERT)
        await rig.worker.take_and_report(Failed)
        assert await followers(rig) == []

    @pytest.mark.parametrize(
        "outcome",
        [Succeeded, Failed, Died, partial(Snoozed, after_ms=9_000)],
        ids=["succeeded", "failed", "died", "snoozed"],
    )
    async def test_then_jobs_are_created_in_the_step_of_the_settlement(
        self, rig: Rig, outcome: Callable[..., Outcome]
    ) -> None:
        run = await rig.start()
        children = (rig.jobs.make(kind="alert"), rig.jobs.make(kind="alert", key=None))
        said = outcome(run.id, run.run, then=children)
        assert await rig.worker.report(said) is Verdict.DONE
        assert [job.id for job in await followers(rig)] == [child.id for child in children]
        assert await rig.worker.report(said) is Verdict.ALREADY
        assert len(await followers(rig)) == 2

    async def test_then_jobs_are_created_though_the_job_ends_cancelled(self, rig: Rig) -> None:
        run = await rig.start()
        await rig.cancel(run.id)
        child = rig.jobs.make(kind="alert")
        said = Succeeded(run.id, run.run, then=(child,))
        assert await rig.worker.report(said) is Verdict.CANCELLED
        assert [job.id for job in await followers(rig)] == [child.id]

    @pytest.mark.parametrize("beside", [0, 1, 2], ids=["alone", "beside one", "beside two"])
    @pytest.mark.parametrize("parts", ["then", "close", "both"])
    async def test_success_without_special_care_does_everything(
        self, rig: Rig, parts: str, beside: int
    ) -> None:
        await rig.declare(LINE)
        await rig.add_many(1 + beside, **SHORT)
        run, *others = await rig.worker.take(3)
        said = Succeeded(
            run.id,
            run.run,
            then=(rig.jobs.make(kind="alert"),) if parts != "close" else (),
            close=(Closing(gate="line", for_ms=9),) if parts != "then" else (),
        )
        verdicts = await rig.worker.settle(said, *(Succeeded(one.id, one.run) for one in others))
        assert set(verdicts) == {Verdict.DONE}
        assert len(await followers(rig)) == (parts != "close")
        until = rig.clock() + 9 if parts != "then" else None
        assert (await rig.gate("line")).closed_until == until

    async def test_then_job_with_a_known_key_creates_no_second_job(self, rig: Rig) -> None:
        known = await rig.add(kind="alert", due_at=rig.clock() + 9_000)
        run = await rig.start()
        again = rig.jobs.make(kind="alert", key=known.key, args=known.args, subject=known.subject)
        await rig.worker.report(Succeeded(run.id, run.run, then=(again,)))
        assert [job.id for job in await followers(rig)] == [known.id]

    async def test_then_job_due_later_is_scheduled(self, rig: Rig) -> None:
        run = await rig.start()
        child = rig.jobs.make(kind="alert", due_at=rig.clock() + 9_000)
        await rig.worker.report(Succeeded(run.id, run.run, then=(child,)))
        assert await rig.state(child.id) is State.SCHEDULED
        rig.clock.advance(9_000)
        assert await rig.worker.take_ids(5) == [child.id]
