from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidValue
from headway.core.instant import format_instant, parse_instant
from headway.core.timetable.fires import (
    MisfirePolicy,
    fires_between,
    latest_fires,
    missed,
    next_fires,
)
from headway.core.timetable.schedule import At, Cron, Every, format_schedule, parse_schedule

MINUTE = 60_000
START_AT = parse_instant("2026-11-21T00:00Z")


def test_interval_fires_at_its_anchor_and_at_every_multiple_after_it():
    every = Every(30 * MINUTE, anchor_at=START_AT)
    assert next_fires(every, START_AT - 1, 2) == [START_AT, START_AT + 30 * MINUTE]
    assert next_fires(every, START_AT, 1) == [START_AT + 30 * MINUTE]
    assert next_fires(every, 0, 1) == [START_AT]
    assert next_fires(every, START_AT + 31 * MINUTE, 1) == [START_AT + 60 * MINUTE]


def test_interval_follows_elapsed_time_across_a_clock_change():
    every = Every(12 * 60 * MINUTE, anchor_at=parse_instant("2026-10-31T09:00-04:00"))
    found = next_fires(every, every.anchor_at, 2)
    assert [format_instant(at, "America/New_York") for at in found] == [
        "2026-10-31T21:00:00-04:00",
        "2026-11-01T08:00:00-05:00",
    ]


def test_time_of_day_fires_on_its_days_only():
    at = At("09:00", tz="Europe/Berlin", days="sat-sun")
    assert [format_instant(each, "Europe/Berlin") for each in next_fires(at, START_AT, 3)] == [
        "2026-11-21T09:00:00+01:00",
        "2026-11-22T09:00:00+01:00",
        "2026-11-28T09:00:00+01:00",
    ]


@pytest.mark.parametrize("name", ["At", "Cron"])
def test_time_at_which_a_repeated_hour_is_over_fires_after_it(name: str):
    tz, day_at = "Europe/Berlin", parse_instant("2026-10-25T00:00+02:00")
    three = At("03:00", tz=tz) if name == "At" else Cron("0 3 * * *", tz=tz)
    (found,) = next_fires(three, day_at, 1)
    assert format_instant(found, tz) == "2026-10-25T03:00:00+01:00"


def test_fires_between_excludes_its_start_and_includes_its_end():
    hourly = Cron("0 * * * *")
    hour = 60 * MINUTE
    assert fires_between(hourly, START_AT, START_AT + 2 * hour, cap=9) == [
        START_AT + hour,
        START_AT + 2 * hour,
    ]
    assert fires_between(hourly, START_AT, START_AT + 2 * hour - 1, cap=9) == [START_AT + hour]
    assert fires_between(hourly, START_AT, START_AT + 9 * hour, cap=1) == [START_AT + hour]
    assert fires_between(hourly, START_AT, START_AT + 9 * hour, cap=0) == []
    assert fires_between(hourly, START_AT, START_AT, cap=9) == []


SCHEDULES = [
    Cron("*/7 * * * *", tz="Australia/Lord_Howe"),
    Cron("30 2 * * sun", tz="Europe/Berlin"),
    At("00:30", tz="Asia/Kathmandu", days="mon-fri"),
    Every(1_000, anchor_at=START_AT),
    Every(45 * MINUTE, anchor_at=17),
]


@settings(deadline=None)
@given(
    st.sampled_from(SCHEDULES),
    st.integers(-(10**9), 10**9),
    st.integers(0, 3 * 10**7),
    st.integers(1, 30),
)
def test_latest_fires_are_the_last_of_all(schedule, shift_ms, span_ms, cap):
    after_at = START_AT + shift_ms
    every = fires_between(schedule, after_at, after_at + span_ms, cap=10**9)
    assert latest_fires(schedule, after_at, after_at + span_ms, cap) == every[-cap:]


def test_latest_fires_of_a_year_of_seconds_are_found_at_once():
    after_at, until_at = START_AT, START_AT + 365 * 86_400_000
    assert latest_fires(Every(1_000), after_at, until_at, 2) == [until_at - 1_000, until_at]
    assert latest_fires(Cron("0 0 29 2 *"), after_at, until_at, 5) == []


def test_missed_fires_are_skipped_or_caught_up_once_or_up_to_a_cap():
    moments = [10, 20, 30, 40]
    assert missed(moments, MisfirePolicy.SKIP, 2) == []
    assert missed(moments, MisfirePolicy.ONCE, 2) == [40]
    assert missed(moments, MisfirePolicy.ALL, 2) == [30, 40]
    assert missed(moments, MisfirePolicy.ALL, 9) == moments
    assert missed(moments, MisfirePolicy.ALL, 0) == []
    for policy in MisfirePolicy:
        assert missed([], policy, 5) == []


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("cron: 0 9 * * 1-5", Cron("0 9 * * 1-5", tz="Asia/Tokyo")),
        ("Cron 0 9 * * 1-5", Cron("0 9 * * 1-5", tz="Asia/Tokyo")),
        ("every 30m", Every(30 * MINUTE, anchor_at=7)),
        ("every: 1h 30m", Every(90 * MINUTE, anchor_at=7)),
        ("at 09:00", At("09:00", tz="Asia/Tokyo")),
        (" at: 09:00  mon-fri ", At("09:00", tz="Asia/Tokyo", days="mon-fri")),
    ],
)
def test_schedule_is_read_from_text_and_formatted_to_be_read_again(text, schedule):
    assert parse_schedule(text, tz="Asia/Tokyo", anchor_at=7) == schedule
    assert parse_schedule(format_schedule(schedule), tz="Asia/Tokyo", anchor_at=7) == schedule


@pytest.mark.parametrize(
    "bad",
    [
        *["", "cron", "cron:", "every", "at", "0 9 * * *", "every 0s", "every 999ms", "every -5m"],
        *["every 30", "at 24:00", "at 9", "at 09:00 someday", "at 09:00 UTC", "atlas 09:00"],
        *["every 36526d", "at 09:00,17:00", "cron: * * *", "x" * 10_000],
    ],
)
def test_invalid_schedule_is_refused_with_a_hint(bad):
    with pytest.raises(InvalidValue) as refused:
        parse_schedule(bad)
    assert refused.value.hint
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("interval", "anchor_at"),
    [(0, 0), (-5, 0), (1.5, 0), ("30m", 0), (True, 0), (5000, -1), (5000, None)],
)
def test_interval_out_of_range_is_refused(interval, anchor_at):
    with pytest.raises(InvalidValue) as refused:
        Every(interval, anchor_at=anchor_at)
    assert refused.value.hint


def test_interval_as_text_is_refused_with_the_schedule_that_accepts_it():
    with pytest.raises(InvalidValue, match=r"must be a whole number .* not '30m'") as refused:
        Every("30m")
    assert 'the schedule "every 30m"' in refused.value.hint


@pytest.mark.parametrize("text", ["every 1h", "at 09:00", "cron: 0 9 * * *"])
def test_unknown_zone_is_refused_whatever_the_schedule(text: str):
    with pytest.raises(InvalidValue, match="no time zone 'Nope'"):
        parse_schedule(text, tz="Nope")


@pytest.mark.parametrize(
    "name", ["localtime", "posixrules", "Factory", "posix/Europe/Berlin", "right/Europe/Berlin"]
)
def test_file_beside_the_zones_is_not_a_zone(name: str):
    """Such a schedule could mean a different time on each machine, or be unreadable on some."""
    with pytest.raises(InvalidValue, match=f"there is no time zone '{name}'") as refused:
        parse_schedule("at 09:00", tz=name)
    assert name not in refused.value.hint


@pytest.mark.parametrize("text", ["at 25:00", "at 24:01", "at 9", "at 23:60"])
def test_hint_for_a_wrong_time_of_day_names_accepted_times(text: str):
    with pytest.raises(InvalidValue) as raised:
        parse_schedule(text)
    assert raised.value.hint == 'write it as "09:00", from 00:00 to 23:59'
    for time in ("00:00", "23:59"):
        assert parse_schedule(f"at {time}") == At(time)
    with pytest.raises(InvalidValue, match="belongs to the next day"):
        parse_schedule("at 24:00")
