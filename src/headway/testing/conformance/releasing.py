"""A permit released by force, which leaves a trace."""

from __future__ import annotations

from headway.contract.outcomes import (
    Succeeded,
)
from headway.core.gates.slots import Slots
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.jobs import use_of

LINE = Slots("line", 1)
PHONE = Slots("phone:{phone}", 1)
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


class ReleasePermitGroup(ConformanceGroup):
    """Force, which leaves a trace."""

    async def test_released_permit_lets_the_next_start_and_is_on_the_trail(self, rig: Rig) -> None:
        await rig.declare(LINE)
        first, second = await rig.add_many(2, gates=(use_of(LINE),))
        run = await rig.worker.take_one()
        assert await rig.store.release_permit("line", first.id, "bob", "stuck") is True
        assert await rig.worker.take_ids(5) == [second.id]
        (line,) = (await rig.dump()).trail[-1:]
        assert (line.author, line.reason, line.at) == ("bob", "stuck", rig.clock())
        await rig.check()
        await rig.worker.say(Succeeded(run.id, run.run))
        assert await rig.holders("line") == [second.id]

    async def test_permit_is_released_once(self, rig: Rig) -> None:
        await rig.declare(LINE)
        job = await rig.add(gates=(use_of(LINE),))
        await rig.worker.take()
        assert await rig.store.release_permit("line", job.id, "bob", "stuck") is True
        assert await rig.store.release_permit("line", job.id, "bob", "stuck") is False
        assert await rig.used("line") == 0

    async def test_release_feeds_a_keyed_gate(self, rig: Rig) -> None:
        await rig.declare(PHONE)
        first, second = await rig.add_many(2, gates=(use_of(PHONE, phone="1"),))
        await rig.worker.take(5)
        await rig.store.release_permit("phone:1", first.id, "bob", "stuck")
        assert await rig.worker.take_ids(5) == [second.id]

    async def test_permit_that_nobody_holds_is_not_released(self, rig: Rig) -> None:
        await rig.declare(LINE)
        job = await rig.add(gates=(use_of(LINE),))
        assert await rig.store.release_permit("line", job.id, "bob", "stuck") is False
        assert await rig.store.release_permit("no such gate", job.id, "bob", "x") is False
        assert await rig.store.release_permit("line", UNKNOWN_ID, "bob", "x") is False
