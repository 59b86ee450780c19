from __future__ import annotations

from math import lcm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.instant import parse_instant
from headway.core.timetable.fires import fires_between, next_fires
from headway.core.timetable.plan import cycle_ms, rhythm, tick_ms
from headway.core.timetable.schedule import At, Cron, Every

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
SINCE_AT = parse_instant("2026-01-01T00:00Z")


def test_two_hourly_crons_20_minutes_apart_need_a_tick_of_20_minutes():
    schedules = [Cron("0 * * * *"), Cron("20 * * * *")]
    assert tick_ms(schedules) == 20 * MINUTE
    assert cycle_ms(schedules) == HOUR
    fires = [at for each in schedules for at in fires_between(each, SINCE_AT, SINCE_AT + DAY, 99)]
    assert sum(at % HOUR == 0 for at in fires) == len(fires) / 2


@pytest.mark.parametrize(
    ("schedule", "tick", "cycle"),
    [
        (Cron("* * * * *"), MINUTE, MINUTE),
        (Cron("*/15 * * * *", tz="America/New_York"), 15 * MINUTE, 15 * MINUTE),
        (Cron("*/15 * * * *", tz="Australia/Lord_Howe"), 15 * MINUTE, 15 * MINUTE),
        (Cron("20 * * * *", tz="America/New_York"), 20 * MINUTE, HOUR),
        (Cron("20 * * * *", tz="Australia/Lord_Howe"), MINUTE, None),
        (Cron("20 * * * *", tz="Asia/Kathmandu"), 5 * MINUTE, HOUR),
        (Cron("*/25 * * * *"), 5 * MINUTE, HOUR),
        (Cron("0 */2 * * *"), 2 * HOUR, 2 * HOUR),
        (Cron("0 */2 * * *", tz="America/New_York"), MINUTE, None),
        (Cron("0 0-23 * * *"), HOUR, HOUR),
        (Cron("0 0-23 * * *", tz="America/New_York"), MINUTE, None),
        (Cron("0 9 * * *"), 3 * HOUR, DAY),
        (Cron("0 9 * * *", tz="Europe/Berlin"), MINUTE, None),
        (Cron("0 9 * * 1-5"), MINUTE, None),
        (Cron("0 9 1 * *"), MINUTE, None),
        (Cron("0 9 * 1 *"), MINUTE, None),
        (Cron("0 9 L * *"), MINUTE, None),
        (Cron("0 9 1-31 * 0-6"), 3 * HOUR, DAY),
        (At("09:00", tz="Asia/Tokyo"), DAY, DAY),
        (At("09:00", tz="Asia/Tokyo", days="mon-fri"), MINUTE, None),
        (At("09:00", tz="Europe/Berlin"), MINUTE, None),
        (Every(90_000), 90_000, 90_000),
        (Every(HOUR, anchor_at=10_500), 1_500, HOUR),
    ],
)
def test_tick_and_cycle_of_one_schedule(schedule, tick, cycle):
    assert tick_ms([schedule], since_at=SINCE_AT) == tick
    assert cycle_ms([schedule], since_at=SINCE_AT) == cycle


def test_past_clock_changes_count_only_on_request():
    kathmandu = Cron("20 * * * *", tz="Asia/Kathmandu")
    assert rhythm(kathmandu, since_at=SINCE_AT)
    assert rhythm(kathmandu) is None


def test_timetable_with_an_irregular_entry_never_repeats_and_ticks_by_the_minute():
    schedules = [Every(HOUR), Cron("0 9 * * 1-5")]
    assert cycle_ms(schedules) is None
    assert tick_ms(schedules) == MINUTE
    assert tick_ms([*schedules, Every(90_000)]) == MINUTE // 2


def test_empty_timetable_ticks_by_the_minute_without_a_cycle():
    assert tick_ms([]) == MINUTE
    assert cycle_ms([]) is None


ZONES = st.sampled_from(["UTC", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
INTERVALS = st.sampled_from([1, 2, 5, 6, 15, 45, 60, 90, 240]).map(lambda n: n * MINUTE)
REGULAR = st.one_of(
    st.builds(Every, INTERVALS, anchor_at=st.integers(0, 9999).map(lambda n: n * 30_000)),
    st.builds(
        Cron,
        st.sampled_from(
            ["*/15 * * * *", "20 * * * *", "7,37 * * * *", "*/25 * * * *", "5 0-23 * * *"]
        ),
        tz=ZONES,
    ),
    st.builds(Cron, st.sampled_from(["40 */3 * * *", "0 9 * * *", "0 9,21 * * *"])),
    st.builds(At, st.sampled_from(["00:00", "04:40", "09:00"]), tz=st.just("Asia/Tokyo")),
)


@settings(deadline=None)
@given(st.lists(REGULAR, min_size=1, max_size=4))
def test_dispatcher_that_checks_at_multiples_of_the_tick_meets_every_fire(schedules):
    tick = tick_ms(schedules, since_at=SINCE_AT)
    for schedule in schedules:
        for around in (
            SINCE_AT,
            parse_instant("2026-04-04T00:00Z"),
            parse_instant("2026-10-31T18:00Z"),
        ):
            assert all(at % tick == 0 for at in next_fires(schedule, around, 60))


@settings(deadline=None)
@given(st.lists(REGULAR, min_size=1, max_size=4), st.data())
def test_no_larger_tick_meets_every_fire(schedules, data):
    regular = [each for each in schedules if rhythm(each, since_at=SINCE_AT)]
    schedules = regular or [Every(HOUR, anchor_at=20 * MINUTE)]
    tick = tick_ms(schedules, since_at=SINCE_AT)
    fires = [at for each in schedules for at in next_fires(each, SINCE_AT, 60)]
    larger = data.draw(
        st.one_of(st.integers(2, 100).map(lambda n: n * tick), st.integers(tick + 1, 2 * DAY))
    )
    assert any(at % larger for at in fires)


@settings(deadline=None)
@given(st.lists(REGULAR, min_size=1, max_size=3))
def test_timetable_repeats_after_its_cycle(schedules):
    cycle = cycle_ms(schedules, since_at=SINCE_AT)
    each = [rhythm(schedule, since_at=SINCE_AT) for schedule in schedules]
    if cycle is None:
        assert None in each
        return
    assert cycle == lcm(*(found.period_ms for found in each))
    for schedule in schedules:
        now = fires_between(schedule, SINCE_AT, SINCE_AT + DAY, 50)
        later = fires_between(schedule, SINCE_AT + cycle, SINCE_AT + cycle + DAY, 50)
        assert [at + cycle for at in now] == later
