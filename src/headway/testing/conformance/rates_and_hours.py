"""Rates and hours: gates that open through the passing of time alone, to the millisecond."""

from __future__ import annotations

from itertools import cycle

from headway.contract.definitions import SetGate
from headway.contract.outcomes import Failed, Released, Succeeded
from headway.core.gates.opening import Hours
from headway.core.gates.rate import Rate
from headway.core.instant import parse_instant
from headway.core.state import State
from headway.testing.conformance.rig import ConformanceGroup, Rig
from headway.testing.jobs import keyed

TWILIO = Rate("rate:twilio", 3, "10s")
SLOW = Rate("slow", 3, "30s")
PHONE = Rate("phone:{phone}", 2, "60s")


class RateGroup(ConformanceGroup):
    """A limit on the starts in any window of claim times on the store's clock."""

    async def test_rate_is_exact_and_half_open(self, rig: Rig) -> None:
        await rig.add_many(6, gates=(TWILIO,))
        assert len(await rig.worker.take(1)) == 1
        rig.clock.advance(4_000)
        assert len(await rig.worker.take(9)) == 2
        rig.clock.advance(5_999)
        full = await rig.worker.ask(9)
        assert (full.jobs, full.next_at) == ([], rig.clock() + 1)
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 1
        rig.clock.advance(3_999)
        assert await rig.worker.take(9) == []
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 2

    async def test_start_counts_until_the_end_of_its_window_even_if_others_follow(
        self, rig: Rig
    ) -> None:
        await rig.add_many(6, gates=(TWILIO,))
        assert len(await rig.worker.take(1)) == 1
        rig.clock.advance(9_999)
        assert len(await rig.worker.take(9)) == 2
        assert await rig.worker.take(9) == []
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 1

    async def test_flow_opens_with_the_last_of_its_gates(self, rig: Rig) -> None:
        await rig.add_many(4, gates=(SLOW, TWILIO))
        assert len(await rig.worker.take(9)) == 3
        assert (await rig.worker.ask(9)).next_at == rig.clock() + 30_000

    async def test_first_flow_to_open_is_waited_for(self, rig: Rig) -> None:
        for gate in (TWILIO, SLOW):
            await rig.add_many(4, gates=(gate,))
        assert len(await rig.worker.take(9)) == 6
        assert (await rig.worker.ask(9)).next_at == rig.clock() + 10_000

    async def test_flow_has_no_opening_time_while_another_gate_is_closed_indefinitely(
        self, rig: Rig
    ) -> None:
        other = Rate("other", 9, "1s")
        await rig.add_many(4, gates=(TWILIO, other))
        assert len(await rig.worker.take(9)) == 3
        assert (await rig.worker.ask(9)).next_at == rig.clock() + 10_000
        await rig.close_gate("other")
        assert (await rig.worker.ask(9)).next_at is None

    async def test_rate_closed_indefinitely_has_no_opening_time(self, rig: Rig) -> None:
        await rig.add_many(2, gates=(TWILIO,))
        await rig.worker.take_one()
        await rig.close_gate("rate:twilio")
        assert (await rig.worker.ask(9)).next_at is None

    async def test_rate_holds_in_every_window_of_a_long_history(self, rig: Rig) -> None:
        await rig.add_many(200, gates=(TWILIO,))
        starts: list[int] = []
        steps = zip(cycle((1, 2, 5, 1, 9)), cycle((1, 900, 3_333, 5_000, 40, 10_000, 7)))
        while len(starts) < 150:
            n, ms = next(steps)
            reply = await rig.worker.ask(n)
            starts += [reply.now] * len(reply.jobs)
            await rig.worker.finish(*reply.jobs)
            rig.clock.advance(ms)
        for n in range(len(starts) - 3):
            assert starts[n + 3] - starts[n] >= 10_000

    async def test_rate_with_a_backlog_is_fully_used(self, rig: Rig) -> None:
        await rig.add_many(30, gates=(TWILIO,))
        for _ in range(10):
            assert len(await rig.worker.take(9)) == 3
            rig.clock.advance(10_000)

    async def test_start_is_never_refunded(self, rig: Rig) -> None:
        await rig.add_many(4, gates=(TWILIO,))
        one, two, three = await rig.worker.take(9)
        await rig.worker.settle(
            Released(one.id, one.run), Failed(two.id, two.run, after_ms=0), Succeeded(three.id, 1)
        )
        rig.clock.advance(9_999)
        assert await rig.worker.take(9) == []
        assert await rig.used("rate:twilio") == 3

    async def test_weighted_starts_count_by_their_amount(self, rig: Rig) -> None:
        await rig.add_many(2, gates=(TWILIO.take(2),))
        first = await rig.worker.ask(9)
        assert len(first.jobs) == 1
        assert await rig.used("rate:twilio") == 2
        rig.clock.advance(10_000)
        assert len(await rig.worker.take(9)) == 1

    async def test_limit_lowered_and_raised_again_forgets_no_start(self, rig: Rig) -> None:
        await rig.add_many(6, gates=(TWILIO,))
        assert len(await rig.worker.take(9)) == 3
        await rig.define(SetGate(name="rate:twilio", limit=1))
        rig.clock.advance(5_000)
        assert await rig.worker.take(9) == []
        await rig.define(SetGate(name="rate:twilio", limit=4))
        assert len(await rig.worker.take(9)) == 1
        rig.clock.advance(5_000)
        assert len(await rig.worker.take(9)) == 2

    async def test_rate_is_not_exceeded_when_the_clock_jumps(self, rig: Rig) -> None:
        await rig.add_many(9, gates=(TWILIO,))
        assert len(await rig.worker.take(9)) == 3
        rig.clock.advance(-3_600_000)
        assert await rig.worker.take(9) == []
        rig.clock.advance(3_600_000 + 9_999)
        assert await rig.worker.take(9) == []
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 3

    async def test_keyed_rate_applies_to_each_key_separately(self, rig: Rig) -> None:
        for phone in ("1", "2"):
            await rig.add_many(3, gates=(keyed(PHONE, phone=phone),))
        assert len(await rig.worker.take(9)) == 4
        full = await rig.worker.ask(9)
        assert (full.jobs, full.next_at) == ([], rig.clock() + 60_000)

    async def test_job_parked_at_a_rate_starts_when_its_window_has_passed(self, rig: Rig) -> None:
        jobs = await rig.add_many(3, gates=(keyed(PHONE, phone="1"),))
        assert len(await rig.worker.take(9)) == 2
        assert await rig.state(jobs[2].id) is State.PARKED
        rig.clock.advance(59_999)
        assert await rig.worker.take(9) == []
        rig.clock.advance(1)
        assert await rig.worker.take_ids(9) == [jobs[2].id]

    async def test_starts_leave_a_keyed_window_one_by_one(self, rig: Rig) -> None:
        await rig.add_many(6, gates=(keyed(PHONE, phone="1"),))
        assert len(await rig.worker.take(1)) == 1
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 1
        rig.clock.advance(59_999)
        assert len(await rig.worker.take(9)) == 1
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 1

    async def test_keyed_rate_is_forgotten_after_its_window(self, rig: Rig) -> None:
        run = await rig.start(gates=(keyed(PHONE, phone="1"),))
        await rig.worker.finish(run)
        await rig.pass_time(59_999)
        assert await rig.used("phone:1") == 1
        await rig.pass_time(3_600_000)
        assert [gate.name for gate in await rig.gates() if gate.name == "phone:1"] == []

    async def test_keyed_rate_with_a_longer_window_is_forgotten_after_it(self, rig: Rig) -> None:
        run = await rig.start(gates=(keyed(PHONE, phone="1"),))
        await rig.worker.finish(run)
        await rig.define(SetGate(name="phone:{phone}", per_ms=7_200_000))
        await rig.pass_time(3_600_000)
        assert await rig.used("phone:1") == 1
        await rig.pass_time(8_000_000)
        assert [gate.name for gate in await rig.gates() if gate.name == "phone:1"] == []

    async def test_limit_of_zero_lets_nothing_pass(self, rig: Rig) -> None:
        await rig.declare(TWILIO)
        await rig.define(SetGate(name="rate:twilio", limit=0))
        job = await rig.add(gates=(TWILIO,))
        empty = await rig.worker.ask(9)
        assert (empty.jobs, empty.next_at) == ([], None)
        assert (await rig.why(job.id)).never_fits == ("rate:twilio",)

    async def test_operators_window_applies_at_once(self, rig: Rig) -> None:
        await rig.add_many(6, gates=(TWILIO,))
        assert len(await rig.worker.take(9)) == 3
        await rig.define(SetGate(name="rate:twilio", limit=3, per_ms=20_000))
        rig.clock.advance(19_999)
        assert await rig.worker.take(9) == []
        rig.clock.advance(1)
        assert len(await rig.worker.take(9)) == 3


DAY_MS = 86_400_000
OFFICE = Hours("hours:office", "09:00-12:00,13:00-18:00", days="mon-fri", tz="Europe/Berlin")
LOCAL = Hours("hours:{tz}", "09:00-18:00", days="mon-fri", tz="{tz}")


class HoursGroup(ConformanceGroup):
    """No job is claimed outside its hours."""

    async def test_hours_open_and_close_to_the_millisecond(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T08:59:59.999+01:00"))
        await rig.add_many(9, gates=(OFFICE,))
        shut = await rig.worker.ask()
        assert (shut.jobs, shut.next_at) == ([], rig.clock() + 1)
        rig.clock.advance(1)
        run = await rig.worker.take_one()
        # A start consumes nothing at an Hours gate.
        assert (await rig.gate("hours:office")).holders == ()
        await rig.worker.finish(run)
        rig.clock.jump_to(parse_instant("2026-03-02T11:59:59.999+01:00"))
        await rig.worker.take_and_report(Succeeded)
        rig.clock.advance(1)
        lunch = await rig.worker.ask()
        assert (lunch.jobs, lunch.next_at) == ([], parse_instant("2026-03-02T13:00+01:00"))
        rig.clock.jump_to(parse_instant("2026-03-02T18:00+01:00"))
        evening = await rig.worker.ask()
        assert evening.next_at == parse_instant("2026-03-03T09:00+01:00")

    async def test_hours_stay_closed_over_the_weekend(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-06T18:00+01:00"))
        await rig.add(gates=(OFFICE,))
        assert (await rig.worker.ask()).next_at == parse_instant("2026-03-09T09:00+01:00")
        rig.clock.advance(DAY_MS)
        assert await rig.worker.take() == []

    async def test_hours_follow_daylight_saving_time(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-27T18:00+01:00"))
        job = await rig.add(gates=(OFFICE,))
        opening = parse_instant("2026-03-30T09:00+02:00")
        assert (await rig.worker.ask()).next_at == opening
        rig.clock.jump_to(opening - 1)
        assert await rig.worker.take() == []
        rig.clock.advance(1)
        assert await rig.worker.take_ids() == [job.id]

    async def test_hours_apply_in_the_zone_of_each_job(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T09:00+01:00"))
        made = {
            zone: await rig.add(gates=(keyed(LOCAL, zone=zone, tz=zone),))
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

    async def test_hours_are_computed_for_two_weeks_and_closed_after_that(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T10:00+01:00"))
        await rig.add_many(2, gates=(OFFICE,), expires_at=None)
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
        await rig.add_many(9, gates=(OFFICE,), expires_at=None)
        for _ in range(5):
            assert len(await rig.worker.take()) == 1
            await rig.pass_time(7 * DAY_MS)
            horizon_at = (await rig.gate("hours:office")).horizon_at
            assert horizon_at is not None
            assert horizon_at >= rig.clock() + 7 * DAY_MS

    async def test_changed_hours_apply_to_waiting_jobs(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T20:00+01:00"))
        job = await rig.add(gates=(OFFICE,))
        assert await rig.worker.take() == []
        await rig.declare(Hours("hours:office", "09:00-22:00", tz="Europe/Berlin"))
        assert await rig.worker.take_ids() == [job.id]

    async def test_exception_hours_replace_those_of_the_day(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-12-24T12:00Z"))
        exceptions = {"2026-12-24": "09:00-12:00", "2026-12-25": None}
        gate = Hours("hours:xmas", "09:00-18:00", tz="UTC", exceptions=exceptions)
        await rig.add(gates=(gate,))
        reply = await rig.worker.ask()
        assert (reply.jobs, reply.next_at) == ([], parse_instant("2026-12-26T09:00Z"))

    async def test_hours_closed_until_before_their_opening_open_on_time(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T19:00+01:00"))
        job = await rig.add(gates=(OFFICE,))
        await rig.close_gate("hours:office", parse_instant("2026-03-03T08:00+01:00"))
        opening = parse_instant("2026-03-03T09:00+01:00")
        (gate,) = (await rig.why(job.id)).closed
        assert gate.opens_at == opening
        await rig.close_gate("hours:office", opening + 60_000)
        (gate,) = (await rig.why(job.id)).closed
        assert gate.opens_at == opening + 60_000

    async def test_hours_can_be_closed_by_hand(self, rig: Rig) -> None:
        rig.clock.jump_to(parse_instant("2026-03-02T10:00+01:00"))
        job = await rig.add(gates=(OFFICE,))
        await rig.close_gate("hours:office")
        assert await rig.worker.take() == []
        await rig.open_gate("hours:office")
        assert await rig.worker.take_ids() == [job.id]
