from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidValue
from headway.core.gates.hours import HoursSpec, hours_spec, intervals, is_open, next_opening
from headway.core.gates.opening import HOURS as HOURS_TRAITS
from headway.core.gates.opening import Hours
from headway.core.instant import format_instant, parse_instant
from tests.core.minute_walk import MINUTE_MS, clock_changes, days_round, walk
from tests.depth import DEPTH

DAY_MS = 86_400_000
CHANGES = [
    ("America/New_York", 2026),
    ("Europe/Berlin", 2026),
    ("Australia/Lord_Howe", 2026),
    ("Asia/Kathmandu", 1985),
    ("Africa/Casablanca", 2026),
    ("Pacific/Apia", 2011),
    ("America/St_Johns", 2006),
    ("America/Santiago", 2024),
    ("America/Havana", 2025),
    ("Antarctica/Troll", 2026),
    ("Asia/Pyongyang", 2018),
]
HOURS = {
    "daytime": hours_spec("09:00-18:00", days="mon-fri"),
    "two spans": hours_spec("01:30-02:30,13:00-18:00"),
    "edges in the change": hours_spec("00:15-01:45,02:15-02:20,02:50-03:10", days="sat-sun"),
    "night": hours_spec("22:00-06:00", days="fri,sat"),
    "whole day": hours_spec("00:00-24:00", days="sat"),
    "evening": hours_spec("18:30-24:00"),
    "until midnight": hours_spec("18:30-00:00"),
    "midnight change": hours_spec("23:10-00:40"),
    "always": hours_spec("00:00-24:00"),
}


def open_by_rule(spec: HoursSpec, day: date, minute: int) -> bool:
    """Return whether the gate is open at a wall-clock time, without using the code under test."""

    def begins(on: date) -> list[tuple[int, int]]:
        special = [spans for special, spans in spec.exceptions if special == on]
        if special:
            return list(special[0])
        return list(spec.spans) if on.weekday() in spec.days else []

    today = any(opening <= minute < closing for opening, closing in begins(day))
    evening = begins(day - timedelta(days=1))
    return today or any(opening <= minute + 1440 < closing for opening, closing in evening)


def assert_intervals_follow_the_wall_clock(spec: HoursSpec, zone: str, start: datetime, n: int):
    minutes = walk(zone, start, n)
    start_at, end_at = minutes[0].at, minutes[-1].at + MINUTE_MS
    found = intervals(spec, zone, start_at, end_at)
    for (_, closed_at), (open_at, _) in pairwise(found):
        assert closed_at < open_at
    assert all(open_at < close_at for open_at, close_at in found)
    assert all(open_at < end_at and close_at > start_at for open_at, close_at in found)
    for each in minutes:
        expected = open_by_rule(spec, each.day, each.minute)
        assert is_open(found, each.at) == expected, (zone, format_instant(each.at, zone))
        assert is_open(found, each.at + MINUTE_MS - 1) == expected


@pytest.mark.sampled
@pytest.mark.parametrize("name", HOURS)
@pytest.mark.parametrize(("zone", "year"), CHANGES)
def test_instant_is_open_exactly_when_local_time_is_inside_a_range(zone, year, name):
    changes = clock_changes(zone, year, year)
    assert changes
    for change in changes:
        spec = HOURS[name]
        assert_intervals_follow_the_wall_clock(spec, zone, *days_round(change, 1))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("zone", "year"), CHANGES[: 3 * DEPTH])
def test_hours_follow_local_time_through_whole_years(zone, year):
    for spec in (HOURS["daytime"], HOURS["night"], HOURS["edges in the change"]):
        assert_intervals_follow_the_wall_clock(
            spec, zone, datetime(year, 1, 1, tzinfo=UTC), 525_600
        )


@st.composite
def some_hours(draw: st.DrawFn) -> HoursSpec:
    edges = sorted(draw(st.sets(st.integers(0, 1439), min_size=2, max_size=6)))
    spans = list(zip(edges[::2], edges[1::2], strict=False))
    opening = spans[-1][0]
    if opening > 1 and draw(st.booleans()):
        spans[-1] = (opening, 1440 + draw(st.integers(1, opening - 1)))
    days = draw(st.sets(st.integers(0, 6)))
    near = st.dates(date(2026, 10, 29), date(2026, 11, 4))
    special = draw(st.dictionaries(near, st.sampled_from([(), ((540, 720),), ((1320, 1800),)])))
    return HoursSpec(
        spans=tuple(spans),
        days=tuple(sorted(days)),
        tz="UTC",
        exceptions=tuple(sorted(special.items())),
    )


@settings(max_examples=40, deadline=None)
@given(some_hours(), st.sampled_from(["America/New_York", "America/Havana", "Asia/Kathmandu"]))
def test_any_hours_with_exceptions_follow_local_time(spec, zone):
    assert_intervals_follow_the_wall_clock(spec, zone, datetime(2026, 10, 31, tzinfo=UTC), 3 * 1440)
    assert HoursSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@settings(deadline=None)
@given(some_hours(), st.lists(st.integers(0, 10 * DAY_MS), min_size=2, max_size=2, unique=True))
def test_any_part_requested_gives_the_same_answer(spec, part):
    base = parse_instant("2026-10-27T00:00Z")
    start_at, end_at = sorted(base + each for each in part)
    whole = intervals(spec, "America/New_York", base - 9 * DAY_MS, base + 19 * DAY_MS)
    found = intervals(spec, "America/New_York", start_at, end_at)

    def inside(pairs):
        clipped = [(max(opening, start_at), min(closing, end_at)) for opening, closing in pairs]
        return [pair for pair in clipped if pair[0] < pair[1]]

    assert inside(found) == inside(whole)


def local(text: str, zone: str) -> int:
    """Return the instant of a local time that the clock shows only once."""
    return parse_instant(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def shown(found, zone):
    return [tuple(format_instant(edge, zone) for edge in pair) for pair in found]


def test_holiday_closes_its_date_but_not_the_night_that_started_before():
    spec = hours_spec(
        "22:00-06:00", exceptions={"2026-12-25": None, date(2026, 12, 26): "10:00-12:00"}
    )
    start_at = parse_instant("2026-12-24T12:00Z")
    assert shown(intervals(spec, "UTC", start_at, start_at + 3 * DAY_MS), None) == [
        ("2026-12-24T22:00:00Z", "2026-12-25T06:00:00Z"),
        ("2026-12-26T10:00:00Z", "2026-12-26T12:00:00Z"),
    ]


def test_spans_of_an_exception_inside_a_night_end_it_no_earlier():
    hours = hours_spec("22:00-06:00", exceptions={"2026-12-25": "01:00-02:00"})
    eve, christmas = parse_instant("2026-12-24T12:00Z"), parse_instant("2026-12-25T12:00Z")
    (found,) = intervals(hours, "UTC", eve, christmas)
    assert found == (parse_instant("2026-12-24T22:00Z"), parse_instant("2026-12-25T06:00Z"))


def test_interval_is_whole_though_only_a_part_of_it_was_requested():
    at = parse_instant("2026-03-28T22:00Z")
    night = hours_spec("22:00-06:00", tz="Europe/Berlin")
    # Clocks are set forward in that night.
    (found,) = intervals(night, "Europe/Berlin", at, at + 1)
    assert found == (parse_instant("2026-03-28T21:00Z"), parse_instant("2026-03-29T04:00Z"))
    ((opens, closes),) = intervals(hours_spec("00:00-24:00"), "UTC", at, at + 1)
    assert opens <= at - DAY_MS
    assert closes >= at + 1 + DAY_MS


def test_exception_opens_a_date_whatever_its_weekday():
    spec = hours_spec("09:00-18:00", days="mon-fri", exceptions={"2026-11-28": "10:00-11:00"})
    start_at = parse_instant("2026-11-28T00:00Z")
    assert shown(intervals(spec, "UTC", start_at, start_at + DAY_MS), None) == [
        ("2026-11-28T10:00:00Z", "2026-11-28T11:00:00Z")
    ]


def test_range_that_opens_in_a_gap_opens_at_its_end():
    spec, zone = hours_spec("02:30-04:00"), "America/New_York"
    start_at = local("2026-03-08T00:00", zone)
    assert shown(intervals(spec, zone, start_at, start_at + DAY_MS // 2), zone) == [
        ("2026-03-08T03:00:00-04:00", "2026-03-08T04:00:00-04:00")
    ]


def test_range_that_ends_inside_a_fold_opens_twice():
    spec, zone = hours_spec("00:30-01:30"), "America/New_York"
    start_at = local("2026-11-01T00:00", zone)
    assert shown(intervals(spec, zone, start_at, start_at + DAY_MS // 2), zone) == [
        ("2026-11-01T00:30:00-04:00", "2026-11-01T01:30:00-04:00"),
        ("2026-11-01T01:00:00-05:00", "2026-11-01T01:30:00-05:00"),
    ]


def test_range_over_the_whole_fold_is_open_through_both_passes():
    spec, zone = hours_spec("00:30-03:00"), "America/New_York"
    start_at = local("2026-11-01T00:00", zone)
    ((open_at, close_at),) = intervals(spec, zone, start_at, start_at + DAY_MS // 2)
    assert close_at - open_at == 3.5 * 3_600_000


def test_days_that_touch_at_midnight_are_one_interval():
    spec = hours_spec("00:00-24:00", days="mon-fri")
    start_at = parse_instant("2026-11-18T12:00Z")
    assert (
        shown(intervals(spec, "UTC", start_at, start_at + 1), None)[0][0] == "2026-11-16T00:00:00Z"
    )
    assert len(intervals(spec, "UTC", start_at, start_at + 7 * DAY_MS)) == 2


def test_next_opening_is_now_when_open_and_none_past_the_last():
    found = ((10, 20), (30, 40))
    assert [next_opening(found, at) for at in (0, 10, 19, 20, 39, 40)] == [10, 10, 19, 30, 39, None]
    assert [is_open(found, at) for at in (9, 10, 19, 20, 40)] == [False, True, True, False, False]
    assert next_opening((), 5) is None
    assert not is_open((), 5)


def test_nothing_is_open_without_days_or_time():
    closed = hours_spec("09:00-18:00", exceptions={"2026-11-01": None})
    at = parse_instant("2026-11-01T00:00Z")
    assert intervals(closed, "UTC", at, at + DAY_MS // 3) == ()
    assert intervals(hours_spec("00:00-24:00"), "UTC", at, at) == ()


@pytest.mark.parametrize(
    ("spans", "minutes"),
    [
        ("09:00-18:00", ((540, 1080),)),
        ("13:00-18:00, 09:00-12:00", ((540, 720), (780, 1080))),
        ("22:00-06:00", ((1320, 1800),)),
        ("18:00-24:00", ((1080, 1440),)),
        ("18:00-00:00", ((1080, 1440),)),
        ("00:00-24:00", ((0, 1440),)),
        ("00:00-00:00", ((0, 1440),)),
        ("9:00-12:00,12:00-13:00", ((540, 720), (720, 780))),
    ],
)
def test_ranges_are_read_as_minutes_of_their_first_day(spans, minutes):
    assert hours_spec(spans).spans == minutes


@pytest.mark.parametrize(
    ("days", "numbers"),
    [
        ("mon-fri", (0, 1, 2, 3, 4)),
        ("mon,wed,sat-sun", (0, 2, 5, 6)),
        ("fri-mon", (0, 4, 5, 6)),
        ("Daily", (0, 1, 2, 3, 4, 5, 6)),
        ("monday, Sun", (0, 6)),
    ],
)
def test_days_are_read_by_name_and_formatted_to_be_read_again(days, numbers):
    spec = hours_spec("09:00-18:00", days=days)
    assert spec.days == numbers
    assert hours_spec("09:00-18:00", days=spec.describe().split(" ")[1]).days == numbers


def test_declaration_of_hours_can_be_declared_again():
    exceptions = {"2026-12-24": "09:00-12:00", "2026-12-25": None}
    gate = Hours("office", "09:00-18:00", days="mon-fri", exceptions=exceptions)
    declared = HOURS_TRAITS.declared(gate)
    assert declared["exceptions"] == exceptions
    again = hours_spec(
        declared["hours"],
        days=declared["days"],
        tz=declared["tz"],
        exceptions=declared["exceptions"],
    )
    assert again == gate.hours


def test_hours_whose_zone_is_not_in_their_name_are_refused():
    with pytest.raises(InvalidValue, match="depend on 'tz'"):
        Hours("office:{branch}", "09:00-18:00", tz="{tz}")


def test_hours_are_described_in_a_line():
    spec = hours_spec("22:00-06:00", days="mon-fri,sun", tz="{tz}", exceptions={"2026-12-25": None})
    assert spec.describe() == "22:00-06:00 mon-fri,sun {tz}, 1 exception"


@pytest.mark.parametrize(
    "bad",
    [
        *[
            "",
            "09:00",
            "09:00-",
            "9-18",
            "09:00-25:00",
            "09:60-10:00",
            "24:00-01:00",
            "09:00-09:00",
        ],
        *[
            "09:00-12:00,11:00-13:00",
            "22:00-06:00,05:00-06:00-07:00",
            "09:00-18:00,",
            "0\uff19:00-18:00",
        ],
        *[9, ["09:00-18:00"]],
    ],
)
def test_invalid_ranges_are_refused_with_a_hint(bad):
    with pytest.raises(InvalidValue) as refused:
        hours_spec(bad)
    assert refused.value.hint


@pytest.mark.parametrize(
    "wrong",
    [
        {"days": ""},
        {"days": "mon-"},
        {"days": "fun"},
        {"days": 5},
        {"tz": "Europe/Berlinn"},
        {"tz": None},
        {"tz": "{tz"},
        {"exceptions": {"2026-02-30": None}},
        {"exceptions": {"christmas": None}},
        {"exceptions": {20261225: None}},
        {"exceptions": {"2026-12-25": "closed"}},
        {"exceptions": ["2026-12-25"]},
        {"exceptions": "2026-12-25"},
        {"exceptions": {"2026-12-25": None, "20261225": "09:00-12:00"}},
        {"exceptions": {"2026-12-25": None, date(2026, 12, 25): "09:00-12:00"}},
    ],
)
def test_invalid_days_zones_and_exceptions_are_refused_with_a_hint(wrong):
    with pytest.raises(InvalidValue) as refused:
        hours_spec("09:00-18:00", **wrong)
    assert refused.value.hint


@pytest.mark.parametrize(
    "change",
    [
        {"spans": [[540, 540]]},
        {"spans": [["a", "b"]]},
        {"spans": 5},
        {"days": [7]},
        {"days": ["mon"]},
        {"exceptions": []},
        {"exceptions": {"x": []}},
        {"exceptions": {"2026-12-25": [], "2026-W52-5": [[540, 720]]}},
        {"tz": "Nowhere"},
    ],
)
def test_foreign_record_of_hours_is_refused(change):
    record = hours_spec("09:00-18:00").to_dict()
    with pytest.raises(InvalidValue):
        HoursSpec.from_dict(record | change)
    with pytest.raises(InvalidValue):
        HoursSpec.from_dict({})


def test_unknown_zone_is_refused_when_intervals_are_computed():
    with pytest.raises(InvalidValue, match="Europe/Berlin"):
        intervals(hours_spec("09:00-18:00", tz="{tz}"), "Europe/Berlim", 0, 1)
