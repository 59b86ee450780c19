"""A new life: an operator's retry of a dead or cancelled job."""

from __future__ import annotations

import pytest

from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import (
    Died,
    Failed,
    HandedOver,
)
from headway.contract.signals import Heard
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.played import dial
from headway.testing.conformance.rig import Rig
from headway.testing.jobs import use_of

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)


class NewLifeGroup(ConformanceGroup):
    """An operator's retry of a dead or cancelled job."""

    @pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
    async def test_retry_begins_a_new_life_with_the_same_id_and_the_run_goes_on(
        self, rig: Rig, state: State
    ) -> None:
        job = await rig.add()
        for _ in range(2):
            run = await rig.worker.take_and_say(Failed, after_ms=0)
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
                await rig.worker.take_and_say(Failed, after_ms=0)
            assert await rig.state(job.id) is State.DEAD
            await rig.act(Verb.RETRY, job.id)
        assert (await rig.view(job.id)).run == 6

    async def test_new_life_may_have_other_arguments(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.act(Verb.KILL, job.id)
        edit = Edit(args=b'{"number":0}', priority=3)
        await rig.act(Verb.RETRY, job.id, edit=edit)
        run = await rig.worker.take_one()
        assert (run.args, run.priority) == (b'{"number":0}', 3)

    async def test_new_life_asks_for_its_gates_again(self, rig: Rig) -> None:
        await rig.declare(LINE, PHONE)
        job = await rig.add(gates=(use_of(LINE), use_of(PHONE, phone="1")))
        await rig.worker.take_and_say(Died)
        await rig.act(Verb.RETRY, job.id)
        await rig.cap("line", 0)
        assert await rig.worker.take(5) == []
        await rig.cap("line", 1)
        assert await rig.worker.take_ids(5) == [job.id]
        assert await rig.holders("phone:1") == [job.id]

    async def test_key_of_a_new_life_lives_on(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.act(Verb.KILL, job.id)
        await rig.act(Verb.RETRY, job.id)
        await rig.pass_time(job.policy.key_for_ms + 1)
        assert await rig.enqueue(job) == [(job.id, False)]

    async def test_signal_of_an_earlier_life_is_late_for_the_new_one(self, rig: Rig) -> None:
        call = await dial(rig)
        await rig.act(Verb.KILL, call.id)
        await rig.act(Verb.RETRY, call.id)
        assert (await rig.tell(call.key)).answer is Heard.LATE
        await rig.worker.take_and_say(HandedOver, key="call-2", timeout_ms=9_000)
        assert (await rig.tell("call-2")).answer is Heard.APPLIED

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
