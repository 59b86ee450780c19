"""Stages: where the next attempt begins, said by a run or by a signal."""

from __future__ import annotations

import pytest

from headway.contract.outcomes import (
    Failed,
    HandedOver,
    KnownAs,
    NextStage,
    Returned,
    Succeeded,
    Verdict,
)
from headway.contract.signals import Decided, Heard, Signal, SignalKind
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.gates.opening import Hours
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateUse
from headway.core.job import DEFAULT_POLICY, NewJob
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import PlayedWorker
from headway.testing.jobs import use_of

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)
OPEN = Hours("open:{tz}", "00:00-24:00", tz="{tz}")
CHECK = (use_of(PHONE, phone="check"),)
DIAL = (use_of(LINE), use_of(PHONE, phone="7"))
ALWAYS = (use_of(OPEN, zone="Asia/Tokyo", tz="Asia/Tokyo"),)
NOWHERE = (GateUse(name="nowhere", template="nowhere"),)


async def dialled(rig: Rig, worker: PlayedWorker) -> NewJob:
    """A job at its stage `dial`, running."""
    await rig.declare(LINE, PHONE, OPEN)
    job = await rig.add(stage="dial", gates=DIAL)
    await worker.take_one()
    return job


class StageGroup(ConformanceGroup):
    """A next attempt at another stage."""

    async def test_failed_run_names_the_stage_at_which_it_is_tried_again(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.cap("line", 0)
        failed = Failed(job.id, 1, error="busy", after_ms=0, stage="check", gates=CHECK)
        assert await rig.worker.say(failed) is Verdict.DONE
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.WAITING, "check", CHECK)
        assert view.runs[0].stage == "dial"
        run = await rig.worker.take_one()
        assert (run.id, run.stage, run.attempt) == (job.id, "check", 2)
        assert await rig.holders("phone:check") == [job.id]

    async def test_failed_run_with_the_policys_delay_changes_its_stage_too(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.say(Failed(job.id, 1, error="busy", stage="check", gates=()))
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.SCHEDULED, "check", ())

    async def test_failed_run_without_a_stage_stays_where_it_was(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.say(Failed(job.id, 1, after_ms=0))
        view = await rig.view(job.id)
        assert (view.stage, view.gates) == ("dial", DIAL)

    async def test_attempts_that_are_used_up_end_the_job_at_its_own_stage(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        for run in (1, 2, 3):
            last = Failed(job.id, run, after_ms=0, stage="check" if run == 3 else "")
            await rig.worker.say(last)
            await rig.worker.take(9)
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.DEAD, "dial", DIAL)

    async def test_failed_run_to_be_cancelled_ends_cancelled_at_its_own_stage(
        self, rig: Rig
    ) -> None:
        job = await dialled(rig, rig.worker)
        await rig.cancel(job.id)
        failed = Failed(job.id, 1, after_ms=0, stage="check", gates=CHECK)
        assert await rig.worker.say(failed) is Verdict.CANCELLED
        assert (await rig.view(job.id)).stage == "dial"

    async def test_stage_with_unknown_gates_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        before = await rig.dump()
        with pytest.raises(UnknownGate):
            await rig.worker.say(Failed(job.id, 1, after_ms=0, stage="check", gates=NOWHERE))
        with pytest.raises(InvalidValue):
            await rig.worker.say(Failed(job.id, 1, after_ms=0, gates=CHECK))
        assert await rig.dump() == before

    async def test_refused_stage_writes_nothing_of_what_was_said_with_it(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        other = await rig.add(policy=DEFAULT_POLICY, key=None)
        await rig.worker.take_one()
        async with rig.refuses(UnknownGate):
            await rig.worker.settle(
                Succeeded(other.id, 1), Failed(job.id, 1, stage="check", gates=NOWHERE)
            )

    async def test_hours_of_the_stage_are_known_at_once(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.say(Failed(job.id, 1, after_ms=0, stage="check", gates=ALWAYS))
        assert await rig.worker.take_ids(9) == [job.id]

    @pytest.mark.parametrize("after_ms", [None, 0, 5_000])
    async def test_signal_of_a_retry_names_its_stage(self, rig: Rig, after_ms: int | None) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.settle(
            HandedOver(job.id, 1, key="sid", timeout_ms=60_000), Returned(job.id, 1)
        )
        again = Signal(
            key="sid",
            event="busy",
            decided=Decided.RETRY,
            after_ms=after_ms,
            stage="check",
            gates=CHECK,
        )
        assert (await rig.store.signal(again)).answer is Heard.APPLIED
        view = await rig.view(job.id)
        assert (view.stage, view.gates) == ("check", CHECK)
        assert (view.state, await rig.used("line")) == (
            State.WAITING if after_ms == 0 else State.SCHEDULED, 0,
        )  # fmt: skip
        await rig.pass_time(1_000_000)
        assert (await rig.worker.take_one()).stage == "check"

    @pytest.mark.parametrize("gates", [CHECK, ALWAYS], ids=["slots", "hours"])
    @pytest.mark.parametrize("known", [True, False], ids=["at hand-over", "known later"])
    async def test_signal_that_is_kept_keeps_its_stage(
        self, rig: Rig, gates: tuple[GateUse, ...], known: bool
    ) -> None:
        job = await dialled(rig, rig.worker)
        again = Signal(
            key=f"{job.id}:1" if known else "sid",
            event="busy",
            decided=Decided.RETRY,
            after_ms=0,
            stage="check",
            gates=gates,
        )
        assert (await rig.store.signal(again)).answer is Heard.KEPT
        await rig.worker.say(HandedOver(job.id, 1, key=f"{job.id}:1", timeout_ms=60_000))
        if not known:
            await rig.worker.say(KnownAs(job.id, 1, key="sid"))
        view = await rig.view(job.id)
        assert (view.state, view.stage, view.gates) == (State.WAITING, "check", gates)
        assert (await rig.worker.take_one()).stage == "check"

    @pytest.mark.parametrize("key", ["unknown", "its own"])
    async def test_signal_that_would_be_kept_with_unknown_gates_is_refused(
        self, rig: Rig, key: str
    ) -> None:
        job = await dialled(rig, rig.worker)
        again = Signal(
            key=f"{job.id}:1" if key == "its own" else key,
            event="busy",
            decided=Decided.RETRY,
            stage="check",
            gates=NOWHERE,
        )
        async with rig.refuses(UnknownGate):
            await rig.store.signal(again)

    @pytest.mark.parametrize(
        "signal",
        [
            Signal(key="k", event="e", decided=Decided.DEAD, stage="check"),
            Signal(key="k", event="e", kind=SignalKind.PROGRESS, stage="check"),
            Signal(key="k", event="e", decided=Decided.RETRY, gates=CHECK),
        ],
        ids=["dead", "progress", "no stage"],
    )
    async def test_stage_of_what_begins_no_attempt_is_refused(
        self, rig: Rig, signal: Signal
    ) -> None:
        with pytest.raises(InvalidValue):
            await rig.store.signal(signal)

    async def test_next_stage_of_hours_that_are_new_goes_on_at_once(self, rig: Rig) -> None:
        job = await dialled(rig, rig.worker)
        await rig.worker.say(NextStage(job.id, 1, stage="late", gates=ALWAYS))
        run = await rig.worker.take_one()
        assert (run.id, run.stage, run.attempt) == (job.id, "late", 1)
