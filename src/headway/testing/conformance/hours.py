"""Hours: open to the millisecond, in each job's zone, closed where the store knows no further."""

from __future__ import annotations

from headway.contract.outcomes import Succeeded
from headway.core.gates.hours import hours_spec
from headway.core.gates.spec import GateKind, GateSpec
from headway.core.instant import parse_instant
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.rig import Rig
from headway.testing.jobs import use_of

DAY_MS = 86_400_000
OFFICE = GateSpec(
    name="hours:office",
    kind=GateKind.HOURS,
    shared=True,
    hours=hours_spec("09:00-12:00,13:00-18:00", days="mon-fri", tz="Europe/Berlin"),
)
LOCAL = GateSpec(
    name="hours:{tz}",
    kind=GateKind.HOURS,
    shared=True,
    hours=hours_spec("09:00-18:00", days="mon-fri", tz="{tz}"),
)


class HoursGroup(ConformanceGroup):
    """Nothing is claimed outside its hours."""

    async def test_hours_open_and_close_to_the_millisecond(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T08:59:59.999+01:00"))
        await rig.declare(OFFICE)
        await rig.add_many(9, gates=(use_of(OFFICE),))
        shut = await rig.worker.ask()
        assert (shut.jobs, shut.next_at) == ([], rig.clock() + 1)
        rig.clock.advance(1)
        await rig.worker.take_and_say(Succeeded)
        rig.clock.jump_to(parse_instant("2026-03-02T11:59:59.999+01:00"))
        await rig.worker.take_and_say(Succeeded)
        rig.clock.advance(1)
        lunch = await rig.worker.ask()
        assert (lunch.jobs, lunch.next_at) == ([], parse_instant("2026-03-02T13:00+01:00"))
        rig.clock.jump_to(parse_instant("2026-03-02T18:00+01:00"))
        evening = await rig.worker.ask()
        assert evening.next_at == parse_instant("2026-03-03T09:00+01:00")

    async def test_hours_stay_closed_over_the_weekend(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-06T18:00+01:00"))
        await rig.declare(OFFICE)
        await rig.add(gates=(use_of(OFFICE),))
        assert (await rig.worker.ask()).next_at == parse_instant("2026-03-09T09:00+01:00")
        rig.clock.advance(DAY_MS)
        assert await rig.worker.take() == []

    async def test_hours_follow_the_change_of_the_clock(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-27T18:00+01:00"))
        await rig.declare(OFFICE)
        job = await rig.add(gates=(use_of(OFFICE),))
        opening = parse_instant("2026-03-30T09:00+02:00")
        assert (await rig.worker.ask()).next_at == opening
        rig.clock.jump_to(opening - 1)
        assert await rig.worker.take() == []
        rig.clock.advance(1)
        assert await rig.worker.take_ids() == [job.id]

    async def test_hours_hold_in_the_zone_of_each_job(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T09:00+01:00"))
        await rig.declare(LOCAL)
        made = {
            zone: await rig.add(gates=(use_of(LOCAL, zone=zone, tz=zone),))
            for zone in ("America/New_York", "Europe/Berlin", "Asia/Tokyo")
        }
        assert set(await rig.worker.take_ids(9)) == {
            made["Europe/Berlin"].id,
            made["Asia/Tokyo"].id,
        }
        reply = await rig.worker.ask(9)
        assert reply.next_at == parse_instant("2026-03-02T09:00-05:00")
        rig.clock.jump_to(parse_instant("2026-03-02T09:00-05:00"))
        assert await rig.worker.take_ids(9) == [made["America/New_York"].id]

    async def test_hours_are_known_for_two_weeks_and_closed_past_that(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T10:00+01:00"))
        await rig.declare(OFFICE)
        await rig.add_many(2, gates=(use_of(OFFICE),), expires_at=None)
        assert len(await rig.worker.take()) == 1
        horizon_at = (await rig.gate("hours:office")).horizon_at
        assert horizon_at is not None
        assert horizon_at >= rig.clock() + 14 * DAY_MS
        rig.clock.advance(364 * DAY_MS)
        assert await rig.worker.take() == []
        await rig.sweep()
        assert len(await rig.worker.take()) == 1

    async def test_sweeps_extend_the_horizon_before_it_is_reached(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T10:00+01:00"))
        await rig.declare(OFFICE)
        await rig.add_many(9, gates=(use_of(OFFICE),), expires_at=None)
        for _ in range(5):
            assert len(await rig.worker.take()) == 1
            await rig.pass_time(7 * DAY_MS)
            horizon_at = (await rig.gate("hours:office")).horizon_at
            assert horizon_at is not None
            assert horizon_at >= rig.clock() + 7 * DAY_MS

    async def test_changed_hours_hold_for_what_already_waits(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T20:00+01:00"))
        await rig.declare(OFFICE)
        job = await rig.add(gates=(use_of(OFFICE),))
        assert await rig.worker.take() == []
        late = hours_spec("09:00-22:00", tz="Europe/Berlin")
        await rig.declare(
            GateSpec(name="hours:office", kind=GateKind.HOURS, shared=True, hours=late)
        )
        assert await rig.worker.take_ids() == [job.id]

    async def test_hours_of_an_exception_replace_those_of_the_day(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-12-24T12:00Z"))
        special = hours_spec(
            "09:00-18:00", tz="UTC", exceptions={"2026-12-24": "09:00-12:00", "2026-12-25": None}
        )
        gate = GateSpec(name="hours:xmas", kind=GateKind.HOURS, shared=True, hours=special)
        await rig.declare(gate)
        await rig.add(gates=(use_of(gate),))
        reply = await rig.worker.ask()
        assert (reply.jobs, reply.next_at) == ([], parse_instant("2026-12-26T09:00Z"))

    async def test_hours_can_be_closed_by_hand_too(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T10:00+01:00"))
        await rig.declare(OFFICE)
        job = await rig.add(gates=(use_of(OFFICE),))
        await rig.shut("hours:office")
        assert await rig.worker.take() == []
        await rig.unshut("hours:office")
        assert await rig.worker.take_ids() == [job.id]
