"""Cancel: queued jobs at once; held ones are asked, and end cancelled whatever is said."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from headway.contract.operate import Acted
from headway.contract.outcomes import (
    Died,
    Failed,
    HandedOver,
    NextStage,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Verdict,
)
from headway.contract.signals import Decided, Heard
from headway.core.gates.slots import Slots
from headway.core.state import FINAL, State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.operating import in_state
from headway.testing.conformance.played import dial, policy_with
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LEASE_MS
from headway.testing.jobs import use_of

LINE = Slots("line", 1)


class CancelGroup(ConformanceGroup):
    """Queued jobs are cancelled at once; running ones are asked to stop."""

    @pytest.mark.parametrize("state", [State.SCHEDULED, State.WAITING, State.PARKED])
    async def test_cancel_of_a_queued_job_is_done_at_once(self, rig: Rig, state: State) -> None:
        job = await in_state(rig, state)
        assert await rig.state(job) is state
        assert await rig.cancel(job) == [Acted.DONE]
        view = await rig.view(job)
        assert (view.state, view.finished_at) == (State.CANCELLED, rig.clock())
        await rig.pass_time(20_000)
        assert job not in await rig.worker.take_ids(9, "calls", "states", "parked")

    @pytest.mark.parametrize("state", [State.RUNNING, State.AWAITING])
    async def test_cancel_of_a_held_job_asks_and_leaves_its_permits(
        self, rig: Rig, state: State
    ) -> None:
        await rig.declare(LINE)
        job = await rig.add(gates=(use_of(LINE),))
        run = await rig.worker.take_one()
        if state is State.AWAITING:
            await rig.worker.say(HandedOver(run.id, run.run, key="call-1", timeout_ms=60_000))
        assert await rig.cancel(job.id) == [Acted.ASKED]
        view = await rig.view(job.id)
        assert (view.state, view.cancel_requested) == (state, True)
        assert await rig.holders("line") == [job.id]

    async def test_next_beat_tells_of_the_cancel(self, rig: Rig) -> None:
        await rig.add_many(2)
        one, two = await rig.worker.take(2)
        await rig.cancel(two.id)
        reply = await rig.worker.beat(one, two)
        assert (reply.cancel, reply.lost) == (((two.id, two.run),), ())

    @pytest.mark.parametrize(
        "outcome",
        [Succeeded, Failed, Died, partial(Snoozed, after_ms=9), NextStage, Released],
        ids=["succeeded", "failed", "died", "snoozed", "next", "released"],
    )
    async def test_job_asked_to_cancel_ends_cancelled_whatever_its_run_says(
        self, rig: Rig, outcome: Callable[..., Outcome]
    ) -> None:
        await rig.declare(LINE)
        job = await rig.add(gates=(use_of(LINE),))
        run = await rig.worker.take_one()
        await rig.cancel(job.id)
        assert await rig.worker.say(outcome(run.id, run.run)) is Verdict.CANCELLED
        view = await rig.view(job.id)
        assert (view.state, view.finished_at) == (State.CANCELLED, rig.clock())
        assert await rig.used("line") == 0
        assert view.runs[0].outcome

    async def test_outcome_of_a_cancelled_run_is_kept_on_the_run(self, rig: Rig) -> None:
        job = await rig.add()
        run = await rig.worker.take_one()
        await rig.cancel(job.id)
        await rig.worker.say(Failed(run.id, run.run, error="boom"))
        (ended,) = (await rig.view(job.id)).runs
        assert (ended.outcome, ended.error) == ("failed", "boom")

    @pytest.mark.parametrize("decided", [Decided.SUCCEEDED, Decided.RETRY, Decided.DEAD])
    async def test_job_asked_to_cancel_ends_cancelled_whatever_its_signal_says(
        self, rig: Rig, decided: Decided
    ) -> None:
        call = await dial(rig)
        await rig.cancel(call.id)
        reply = await rig.tell(call.key, decided)
        assert (reply.answer, reply.state) == (Heard.APPLIED, State.CANCELLED)
        assert await rig.state(call.id) is State.CANCELLED

    async def test_job_asked_to_cancel_may_still_hand_over_and_ends_cancelled(
        self, rig: Rig
    ) -> None:
        job = await rig.add()
        run = await rig.worker.take_one()
        await rig.cancel(job.id)
        await rig.worker.say(HandedOver(run.id, run.run, key="call-1", timeout_ms=9_000))
        assert await rig.state(job.id) in {State.AWAITING, State.CANCELLED}
        await rig.pass_time(9_000)
        assert await rig.state(job.id) is State.CANCELLED

    async def test_job_asked_to_cancel_ends_cancelled_when_its_lease_is_lost(
        self, rig: Rig
    ) -> None:
        await rig.declare(LINE)
        job = await rig.add(gates=(use_of(LINE),))
        await rig.worker.take()
        await rig.cancel(job.id)
        await rig.pass_time(LEASE_MS + 1)
        assert await rig.state(job.id) is State.CANCELLED
        assert await rig.used("line") == 0

    async def test_job_asked_to_cancel_ends_cancelled_at_its_deadline(self, rig: Rig) -> None:
        call = await dial(rig, policy=policy_with(on_deadline="retry"))
        await rig.cancel(call.id)
        await rig.pass_time(1_800_000)
        assert await rig.state(call.id) is State.CANCELLED

    @pytest.mark.parametrize("state", sorted(FINAL))
    async def test_cancel_of_a_final_job_is_refused(self, rig: Rig, state: State) -> None:
        job = await in_state(rig, state)
        before = await rig.view(job)
        assert await rig.cancel(job) == [Acted.REFUSED]
        assert (await rig.view(job)).finished_at == before.finished_at
        assert await rig.state(job) is state

    async def test_cancel_again_while_it_is_asked_for_is_asked_again(self, rig: Rig) -> None:
        call = await dial(rig)
        assert await rig.cancel(call.id) == [Acted.ASKED]
        assert await rig.cancel(call.id) == [Acted.ASKED]

    async def test_cancelled_job_starts_in_no_claim_after_it(self, rig: Rig) -> None:
        jobs = await rig.add_many(5)
        await rig.cancel(*(job.id for job in jobs[::2]))
        assert await rig.worker.take_ids(9) == [jobs[1].id, jobs[3].id]
