"""Weighted keyed gates: a parked job that could pass one day holds back those behind it there."""

from __future__ import annotations

import pytest

from headway.contract.operate import Edit, Verb
from headway.contract.outcomes import Succeeded
from headway.core.gates.slots import Slots
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.jobs import use_of

LICENCE = Slots("licence:{name}", 4)


class HoldBackGroup(ConformanceGroup):
    """Who asks for more is not passed by who asks for less, at one gate in one flow."""

    async def test_weighted_head_holds_back_its_followers_at_that_gate(self, rig: Rig) -> None:
        await rig.declare(LICENCE)
        three = use_of(LICENCE, 3, name="cad")
        two, one = use_of(LICENCE, 2, name="cad"), use_of(LICENCE, 1, name="cad")
        await rig.add(gates=(two,))
        head = await rig.add(gates=(three,))
        small = await rig.add(gates=(one,))
        elsewhere = await rig.add(gates=(use_of(LICENCE, 1, name="sim"),))
        runs = await rig.worker.take(9)
        assert [run.id for run in runs[1:]] == [elsewhere.id]
        await rig.worker.settle(Succeeded(runs[0].id, runs[0].run))
        assert await rig.worker.take_ids(9) == [head.id, small.id]

    async def test_smaller_newcomer_does_not_pass_a_parked_head_that_asks_for_more(
        self, rig: Rig
    ) -> None:
        await rig.declare(LICENCE)
        three, two, one = (use_of(LICENCE, n, name="cad") for n in (3, 2, 1))
        await rig.add(gates=(two,))
        head = await rig.add(gates=(three,))
        run = await rig.worker.take_one()
        assert await rig.worker.take(9) == []
        small = await rig.add(gates=(one,))
        assert await rig.worker.take(9) == []
        await rig.worker.say(Succeeded(run.id, run.run))
        assert await rig.worker.take_ids(9) == [head.id, small.id]

    @pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.EDIT])
    async def test_parked_head_that_leaves_lets_those_it_held_back_start(
        self, rig: Rig, verb: Verb
    ) -> None:
        await rig.declare(LICENCE)
        three, two, one = (use_of(LICENCE, n, name="cad") for n in (3, 2, 1))
        await rig.add(gates=(two,))
        head = await rig.add(gates=(three,))
        small = await rig.add(gates=(one,))
        await rig.worker.take_one()
        assert await rig.worker.take(9) == []
        assert await rig.states(head, small) == [State.PARKED] * 2
        await rig.act(verb, head.id, edit=Edit(due_at=rig.clock() + 9_000))
        assert await rig.worker.take_ids(9) == [small.id]

    @pytest.mark.parametrize("name", ["licence:cad", "licence:{name}"])
    async def test_parked_head_that_a_lowered_capacity_can_never_fit_holds_nobody_back(
        self, rig: Rig, name: str
    ) -> None:
        await rig.declare(LICENCE)
        four, one = (use_of(LICENCE, n, name="cad") for n in (4, 1))
        first = await rig.add(gates=(one,))
        big = await rig.add_many(3, gates=(four,))
        small = await rig.add(gates=(one,))
        run = await rig.worker.take_one()
        assert run.id == first.id
        assert await rig.worker.take(9) == []
        await rig.cap(name, 3)
        (run_small,) = await rig.worker.take(9)
        assert run_small.id == small.id
        assert (await rig.why(big[0].id)).never_fits == ("licence:cad",)
        await rig.worker.settle(Succeeded(run.id, run.run), Succeeded(small.id, run_small.run))
        assert await rig.worker.take(9) == []
        await rig.cap(name, 4)
        assert await rig.worker.take_ids(9) == [big[0].id]

    async def test_weighted_permits_given_back_feed_as_many_as_fit(self, rig: Rig) -> None:
        await rig.declare(LICENCE)
        whole = await rig.add(gates=(use_of(LICENCE, 4, name="cad"),))
        jobs = await rig.add_many(5, gates=(use_of(LICENCE, 2, name="cad"),))
        run = await rig.worker.take_one()
        assert run.id == whole.id
        await rig.worker.take(9)
        await rig.worker.settle(Succeeded(run.id, run.run))
        states = await rig.states(*jobs)
        assert states.count(State.WAITING) == 2
        assert await rig.worker.take_ids(9) == [jobs[0].id, jobs[1].id]
