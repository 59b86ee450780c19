from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidValue
from headway.core.instant import format_instant, parse_instant
from headway.core.local_time import MAX_AT
from headway.core.timetable.fires import fires_after, fires_between, next_fires
from headway.core.timetable.schedule import At, Cron
from tests.core.cron_oracle import CronOracle
from tests.core.minute_walk import MINUTE_MS, clock_changes, days_round, walk
from tests.depth import DEPTH

CHANGES = [
    ("America/New_York", 2026),
    ("Europe/Berlin", 2026),
    ("Europe/Helsinki", 2026),
    ("Europe/Dublin", 2026),
    ("America/Santiago", 2024),
    ("Australia/Lord_Howe", 2026),
    ("Asia/Kathmandu", 1985),
    ("Africa/Casablanca", 2026),
    ("Pacific/Apia", 2011),
    ("America/St_Johns", 2006),
    ("America/Havana", 2025),
    ("Antarctica/Troll", 2026),
    ("Asia/Pyongyang", 2018),
    ("America/Caracas", 2016),
]
EXPRESSIONS = [
    "* * * * *",
    "*/15 * * * *",
    "20 * * * *",
    "7,37 */2 * * *",
    "30 */3 * * sun",
    "30 1 * * *",
    "30 2 * * *",
    "0 3 * * *",
    "*/15 2 * * *",
    "* 1-3 * * *",
    "*/10 0-23 * * *",
    "15 0,1,2,3,23 * * *",
    "0 0 * * *",
    "59 23 * * *",
    "0 9 * * mon-fri",
    "5/20 2-3 * * 0,6",
    "45 1 1-7 * sun",
    "10 2 */2 jan-dec 7",
    "0 0-4/2 30,31,1 * *",
    "45 12 * * 1/3",
]


def assert_fires_as_walked(expr: str, zone: str, start: datetime, n: int) -> None:
    minutes = walk(zone, start, n)
    after_at, until_at = minutes[0].at - 1, minutes[-1].at
    found = fires_between(Cron(expr, tz=zone), after_at, until_at, cap=n + 1)
    expected = CronOracle(expr).fires(minutes)
    assert [format_instant(at, zone) for at in found] == [
        format_instant(at, zone) for at in expected
    ], (expr, zone)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize(("zone", "year"), CHANGES)
def test_cron_fires_like_a_walk_through_every_minute_when_clocks_change(zone, year):
    changes = clock_changes(zone, year, year)
    assert changes
    for change in changes:
        for expr in EXPRESSIONS:
            assert_fires_as_walked(expr, zone, *days_round(change, 1))


@pytest.mark.parametrize(
    "expr",
    [
        "27-27/4 2-2/3 * * *",
        "5,40-40/1 1-3/9 1-31 jan-1/2,mar-dec *",
        "15 3 * * mon-mon/2",
        "15 3 * * SUN-0/2,wed-3/1",
        "15 3 7-7/7,28-31/2 * 5-5/2",
    ],
)
def test_range_of_one_value_is_that_value_whatever_its_step(expr):
    assert_fires_as_walked(expr, "Europe/Berlin", datetime(2026, 1, 20, tzinfo=UTC), 28 * 1440)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("zone", "year"), CHANGES[: 3 * DEPTH])
def test_cron_fires_like_a_walk_through_whole_years(zone, year):
    start = datetime(year, 1, 1, tzinfo=UTC) - timedelta(days=40)
    for expr in ["20 * * * *", "*/15 2 * * *", "30 2 13 * 5", "0 0 1 */3 *", "0 9 * * mon-fri"]:
        assert_fires_as_walked(expr, zone, start, 445 * 1440)


@pytest.mark.slow
@pytest.mark.timeout(1800 * DEPTH)
def test_cron_fires_like_a_walk_at_every_clock_change_of_some_zones():
    walked: set[tuple[object, ...]] = set()
    for zone in sorted(available_timezones())[:: max(1, 12 // DEPTH)]:
        info = ZoneInfo(zone)
        changes = clock_changes(zone, 2000, 2037)
        shifts = [each.astimezone(info).utcoffset() for each in changes]
        if (*changes, *shifts) in walked:
            continue  # an alias of a zone that was walked
        walked.add((*changes, *shifts))
        for change in changes:
            for expr in ("30 2 * * *", "*/20 0-3,22-23 * * *", "15 * * * *", "0 */2 * * *"):
                assert_fires_as_walked(expr, zone, change - timedelta(hours=6), 36 * 60)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    def some(low: int, high: int) -> str:
        number = st.integers(low, high)
        part = st.one_of(
            st.just("*"),
            number.map(str),
            st.tuples(number, number).map(lambda ends: "{}-{}".format(*sorted(ends))),
            st.tuples(number, number, st.integers(1, 9)).map(
                lambda each: "{}-{}/{}".format(*sorted(each[:2]), each[2])
            ),
            st.tuples(number, st.integers(1, 9)).map("{0[0]}-{0[0]}/{0[1]}".format),
            st.integers(1, high).map("*/{}".format),
            st.tuples(number, st.integers(1, 9)).map("{0[0]}/{0[1]}".format),
        )
        return ",".join(draw(st.lists(part, min_size=1, max_size=2)))

    return f"{some(0, 59)} {some(0, 23)} {some(1, 28)} {some(1, 12)} {some(0, 6)}"


@settings(max_examples=60, deadline=None)
@given(expressions(), st.sampled_from([CHANGES[0], CHANGES[4], CHANGES[5]]), st.booleans())
def test_any_cron_fires_like_a_walk_when_clocks_change(expr, place, spring):
    change = clock_changes(place[0], place[1], place[1])[spring]
    assert_fires_as_walked(expr, place[0], *days_round(change, 1))


@settings(deadline=None)
@given(
    expressions(),
    st.sampled_from(CHANGES),
    st.integers(-2 * 86_400_000, 2 * 86_400_000),
)
def test_fires_computed_one_by_one_equal_those_computed_together(expr, place, shift_ms):
    change = clock_changes(place[0], place[1], place[1])[0]
    cron = Cron(expr, tz=place[0])
    after_at = int(change.timestamp()) * 1000 + shift_ms
    together = next_fires(cron, after_at, 12)
    assert all(earlier < later for earlier, later in pairwise([after_at, *together]))
    last_at, one_by_one = after_at, []
    for _ in together:
        (last_at,) = next_fires(cron, last_at, 1)
        one_by_one.append(last_at)
    assert one_by_one == together


def fired(expr: str, zone: str, after: str, n: int) -> list[str]:
    found = next_fires(Cron(expr, tz=zone), parse_instant(after), n)
    return [format_instant(at, zone) for at in found]


def test_time_skipped_in_spring_fires_once_at_the_end_of_the_gap():
    assert fired("30 2 * * *", "America/New_York", "2026-03-08T00:00-05:00", 2) == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]
    assert fired("*/15 2,3 * * *", "America/New_York", "2026-03-08T00:00-05:00", 2) == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-08T03:15:00-04:00",
    ]


def test_time_repeated_in_autumn_fires_once_in_the_first_pass():
    assert fired("30 1 * * *", "America/New_York", "2026-11-01T00:00-04:00", 2) == [
        "2026-11-01T01:30:00-04:00",
        "2026-11-02T01:30:00-05:00",
    ]
    assert fired("30 1 * * *", "America/New_York", "2026-11-01T01:00-05:00", 1) == [
        "2026-11-02T01:30:00-05:00"
    ]


def test_wildcard_hours_follow_elapsed_time():
    for after in ("2026-03-08T00:00-05:00", "2026-11-01T00:00-04:00"):
        found = next_fires(Cron("*/20 * * * *", tz="America/New_York"), parse_instant(after), 20)
        assert {later - earlier for earlier, later in pairwise(found)} == {20 * MINUTE_MS}


def test_wildcard_hours_skip_a_nonexistent_local_time():
    assert fired("0 */2 * * *", "Europe/Berlin", "2026-03-29T00:00+01:00", 2) == [
        "2026-03-29T04:00:00+02:00",
        "2026-03-29T06:00:00+02:00",
    ]


def test_autumn_fold_of_helsinki_does_not_hang():
    for expr in ("0 3 * * *", "30 3 * * *", "*/5 3 * * *", "*/30 * * * *", "0 3,4 * * sun"):
        found = next_fires(Cron(expr, tz="Europe/Helsinki"), parse_instant("2026-10-24T12:00Z"), 99)
        assert len(found) == 99
        assert all(earlier < later for earlier, later in pairwise(found))


def test_midnight_in_santiago_is_skipped_in_spring_and_repeated_in_autumn():
    assert fired("0 0 * * *", "America/Santiago", "2024-09-07T12:00-04:00", 2) == [
        "2024-09-08T01:00:00-03:00",
        "2024-09-09T00:00:00-03:00",
    ]
    assert fired("30 23 * * *", "America/Santiago", "2024-04-06T12:00-03:00", 2) == [
        "2024-04-06T23:30:00-03:00",
        "2024-04-07T23:30:00-04:00",
    ]


def test_nonexistent_day_is_caught_up_once_at_its_end():
    assert fired("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00-10:00", 3) == [
        "2011-12-29T09:00:00-10:00",
        "2011-12-31T00:00:00+14:00",
        "2011-12-31T09:00:00+14:00",
    ]


@pytest.mark.parametrize(("zone", "year"), CHANGES)
def test_time_of_day_fires_like_the_same_cron(zone, year):
    for change in clock_changes(zone, year, year):
        after_at = int((change - timedelta(days=2)).timestamp()) * 1000
        for clock, days, expr in (
            ("02:30", "daily", "30 2 * * *"),
            ("00:00", "fri,sat,sun", "0 0 * * fri,sat,sun"),
            ("23:30", "sat", "30 23 * * 6"),
        ):
            at = At(clock, tz=zone, days=days)
            assert next_fires(at, after_at, 6) == next_fires(Cron(expr, tz=zone), after_at, 6)


@pytest.mark.parametrize(
    ("expr", "day"),
    [
        ("0 0 L * *", "2026-01-31"),
        ("0 0 LW * *", "2026-01-30"),
        ("0 0 * * 5L", "2026-01-30"),
        ("0 0 * * 5#2", "2026-01-09"),
        ("0 0 * * 7", "2026-01-04"),
        ("@monthly", "2026-02-01"),
        ("0 0 29 2 *", "2028-02-29"),
        ("0 0 29 2 */7", "2032-02-29"),
        ("0 0 * feb MON#5", "2044-02-29"),
    ],
)
def test_rare_days_are_found(expr, day):
    assert fired(expr, "UTC", "2026-01-01T00:00Z", 1) == [f"{day}T00:00:00+00:00"]


@pytest.mark.parametrize("expr", ["0 0 30 2 *", "0 0 31 feb,apr *", "0 0 31 2 */2", "* * 31 4/5 *"])
def test_cron_that_can_never_fire_is_refused(expr):
    with pytest.raises(InvalidValue, match="the given month never has this day"):
        Cron(expr)


@pytest.mark.parametrize(
    "expr",
    [
        *["", "*", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *"],
        *[
            "* * * * 8",
            "*/0 * * * *",
            "5-1 * * * *",
            "5-5/0 * * * *",
            "5-5/x * * * *",
            "60-60/2 * * * *",
            "mon-mon/2 * * * *",
            "* * L-L/2 * *",
            "a * * * *",
            "@reboot",
            "-1 * * * *",
            "1.5 * * * *",
        ],
        *[
            "\u0661 * * * *",
            "9" * 5000 + " * * * *",
            "1," * 5000 + "1 * * * *",
            "* * * * 1#6",
            "? * * * *",
        ],
        *["* * * * \0", None, 5, ["* * * * *"]],
    ],
)
def test_invalid_cron_is_refused_with_a_hint(expr):
    with pytest.raises(InvalidValue):
        Cron(expr)


def test_unknown_zone_is_refused():
    with pytest.raises(InvalidValue, match="Europe/Berlin"):
        Cron("* * * * *", tz="Europe/Berlinn")
    with pytest.raises(InvalidValue, match="America/New_York"):
        At("09:00", tz="New York")


def test_fires_end_with_the_year_9999():
    after_at = MAX_AT - 3 * 86_400_000
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        for schedule in (
            Cron("0 9 * * *", tz=zone),
            Cron("0 * * * *", tz=zone),
            At("09:00", tz=zone),
        ):
            found = list(fires_after(schedule, after_at))
            assert found
            assert found[-1] <= MAX_AT
    assert next_fires(Cron("* * * * *"), MAX_AT, 1) == []
