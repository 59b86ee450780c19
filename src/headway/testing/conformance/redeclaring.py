"""Gates that are declared again: what then holds for jobs that exist already."""

from __future__ import annotations

import asyncio

import pytest

from headway.contract.outcomes import HandedOver, Succeeded
from headway.core.gates.opening import Hours
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.core.state import State
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import use_of

SHUT = Hours("shop", "12:00-12:01", tz="UTC")
WIDER: list[tuple[GateSpec, GateSpec]] = [
    (Slots("line", 0), Slots("line", 2)),
    (Rate("rate", 1, "1h"), Rate("rate", 3, "1h")),
    (Rate("rate", 1, "1h"), Rate("rate", 1, "1ms")),
    (Pool("numbers", {}), Pool("numbers", {"a": 2})),
    (Pool("numbers", {"a": 0}), Pool("numbers", {"a": 0, "b": 2})),
]
KEYED: list[tuple[GateSpec, GateSpec]] = [
    (Slots("line:{n}", 0), Slots("line:{n}", 2)),
    (Rate("rate:{n}", 1, "1h"), Rate("rate:{n}", 3, "1h")),
    (Pool("numbers:{n}", {}), Pool("numbers:{n}", {"a": 2})),
    (Pool("numbers:{n}", {"a": 1}), Pool("numbers:{n}", {"a": 1, "b": 1})),
]


def named(pairs: list[tuple[GateSpec, GateSpec]]) -> list[str]:
    """Name for the cases of a test."""
    return [f"{spec.kind}-{place}" for place, (spec, _) in enumerate(pairs)]


class RedeclareGroup(ConformanceGroup):
    """A gate whose declaration changes under jobs that wait for it."""

    @pytest.mark.parametrize(("before", "after"), WIDER, ids=named(WIDER))
    async def test_wider_gate_lets_what_waits_go_and_wakes_who_sleeps(
        self, rig: Rig, before: GateSpec, after: GateSpec
    ) -> None:
        await rig.declare(before)
        await rig.add_many(3, gates=(use_of(before),))
        await rig.worker.take(9)
        rig.clock.advance(2)
        reply = await rig.worker.ask(9)
        assert reply.jobs == []
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(rig.store.wait([LANE], None, reply.seen))
            await rig.declare(after)
        assert await rig.worker.take(9) != []

    @pytest.mark.parametrize(("before", "after"), KEYED, ids=named(KEYED))
    async def test_wider_keyed_gate_feeds_what_is_parked_and_wakes_who_sleeps(
        self, rig: Rig, before: GateSpec, after: GateSpec
    ) -> None:
        await rig.declare(before)
        jobs = await rig.add_many(2, gates=(use_of(before, n="7"),))
        await rig.worker.take(9)
        reply = await rig.worker.ask(9)
        assert reply.jobs == []
        assert await rig.state(jobs[-1].id) is State.PARKED
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(rig.store.wait([LANE], None, reply.seen))
            await rig.declare(after)
        assert jobs[-1].id in await rig.worker.take_ids(9)

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (Slots("line", 2), Slots("line", 1)),
            (Rate("rate", 2, "1s"), Rate("rate", 1, "1s")),
            (Pool("numbers", {"a": 2}), Pool("numbers", {"a": 1})),
            (Pool("numbers", {"a": 2}), Pool("numbers", {})),
        ],
        ids=["slots", "rate", "pool", "no member"],
    )
    async def test_narrower_gate_holds_at_once_for_what_waits(
        self, rig: Rig, before: GateSpec, after: GateSpec
    ) -> None:
        await rig.declare(before)
        await rig.add_many(2, gates=(use_of(before),))
        assert len(await rig.worker.take(1)) == 1
        await rig.declare(after)
        assert await rig.worker.take(9) == []

    async def test_hours_declared_anew_hold_at_once(self, rig: Rig) -> None:
        await rig.declare(SHUT)
        job = await rig.add(gates=(use_of(SHUT),))
        reply = await rig.worker.ask(9)
        assert reply.jobs == []
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(rig.store.wait([LANE], None, reply.seen))
            await rig.declare(Hours("shop", "00:00-24:00", tz="UTC"))
        assert await rig.worker.take_ids(9) == [job.id]

    @pytest.mark.parametrize("name", ["numbers", "numbers:{n}"], ids=["shared", "keyed"])
    @pytest.mark.parametrize(
        ("members", "said"),
        [
            ({}, "pool {} has no members"),
            ({"a": 0, "b": 0}, "pool {} has no member with a capacity above 0"),
        ],
        ids=["none", "of none"],
    )
    async def test_pool_that_nobody_can_pass_says_so_plainly(
        self, rig: Rig, name: str, members: dict[str, int], said: str
    ) -> None:
        pool = Pool(name, members)
        await rig.declare(pool)
        use = use_of(pool, n="7")
        job = await rig.add(gates=(use,))
        assert await rig.worker.take(9) == []
        why = await rig.why(job.id)
        assert (why.shown, why.never_fits) == ("blocked", (use.name,))
        assert said.format(use.name) in why.sentence
        assert "full" not in why.sentence

    @pytest.mark.parametrize("name", ["numbers", "numbers:{n}"], ids=["shared", "keyed"])
    async def test_permit_of_a_member_no_longer_declared_stays_known_until_given_back(
        self, rig: Rig, name: str
    ) -> None:
        pool = Pool(name, {"a": 1, "b": 1})
        await rig.declare(pool)
        use = use_of(pool, n="7")
        jobs = await rig.add_many(4, gates=(use,))
        first, second = await rig.worker.take(9)
        await rig.worker.say(HandedOver(first.id, first.run, key="sid", timeout_ms=60_000))
        await rig.declare(Pool(name, {"b": 1}))
        await rig.check()
        gone = await rig.gate(f"{use.name}/a")
        assert (gone.kind, gone.capacity, gone.used) == ("slots", 0, 1)
        assert [holder.job for holder in gone.holders] == [first.id]
        assert (await rig.view(first.id)).runs[-1].permits == {use.name: "a"}
        await rig.tell("sid")
        await rig.check()
        assert await rig.used(f"{use.name}/a") == 0
        assert await rig.worker.take(9) == []
        await rig.worker.say(Succeeded(second.id, second.run))
        (run,) = await rig.worker.take(9)
        assert (run.id, dict(run.members)) == (jobs[2].id, {use.name: "b"})

    async def test_member_declared_again_counts_what_is_still_out(self, rig: Rig) -> None:
        pool = Pool("numbers", {"a": 1})
        await rig.declare(pool)
        await rig.add_many(2, gates=(use_of(pool),))
        run = await rig.worker.take_one()
        await rig.declare(Pool("numbers", {}))
        await rig.declare(pool)
        assert await rig.worker.take(9) == []
        await rig.worker.say(Succeeded(run.id, run.run))
        assert len(await rig.worker.take(9)) == 1

    async def test_permit_of_a_member_no_longer_declared_is_released_by_force(
        self, rig: Rig
    ) -> None:
        pool = Pool("numbers", {"a": 1})
        await rig.declare(pool)
        await rig.add(gates=(use_of(pool),))
        run = await rig.worker.take_one()
        await rig.declare(Pool("numbers", {}))
        assert await rig.store.release_permit("numbers/a", run.id, "ann", "stuck")
        assert await rig.used("numbers/a") == 0
