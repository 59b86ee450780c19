from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidValue
from headway.core.instant import Moment, format_instant, parse_instant
from headway.core.local_time import MAX_AT

ZONES = [None, "UTC", "Asia/Kathmandu", "America/St_Johns", "Africa/Monrovia", "Pacific/Apia"]


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01T18:00Z",
        "2026-12-01T10:00-08:00",
        "2026-12-01 18:00:00.000+00:00",
        "20261201T18Z",
    ],
)
def test_instant_is_read_from_iso_8601_with_an_offset(text):
    assert parse_instant(text) == 1_796_148_000_000


def test_aware_datetime_is_read_with_its_fold():
    first = datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"))
    assert parse_instant(first) == parse_instant("2026-11-01T05:30Z")
    assert parse_instant(first.replace(fold=1)) == parse_instant("2026-11-01T06:30Z")


@pytest.mark.parametrize(
    "naive",
    ["2026-12-01T10:00", "2026-12-01", datetime(2026, 12, 1, 10)],  # noqa: DTZ001  (the case)
)
def test_naive_datetime_is_refused_with_a_clear_hint(naive):
    with pytest.raises(InvalidValue, match="no offset from UTC") as refused:
        parse_instant(naive)
    assert "2026-12-01T10:00-08:00" in refused.value.hint


@pytest.mark.parametrize(
    "outside",
    [
        "1969-12-31T23:59:59.999Z",
        "0001-01-01T00:00+14:00",
        "9999-12-31T23:59:59-00:01",
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
    ],
)
def test_years_outside_1970_to_9999_are_refused(outside):
    with pytest.raises(InvalidValue, match="1970 to 9999"):
        parse_instant(outside)


@pytest.mark.parametrize(
    "bad",
    [
        *[
            "",
            "now",
            "10:00Z",
            "2026-02-30T10:00Z",
            "2026-12-01T25:00Z",
            "9" * 9999,
            "\ud800",
            "a\0b",
        ],
        *[1_796_148_000_000, 1.5, None, True, timedelta(1), b"2026-12-01T18:00Z"],
    ],
)
def test_invalid_instant_is_refused_with_a_hint(bad):
    with pytest.raises(InvalidValue) as refused:
        parse_instant(bad)
    assert refused.value.hint
    assert len(str(refused.value)) < 300


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=MAX_AT - 86_400_000), st.sampled_from(ZONES))
def test_instant_formatted_in_any_zone_is_read_back(at, zone):
    assert parse_instant(format_instant(at, zone)) == at


def test_instant_is_shown_with_milliseconds_only_if_it_has_some():
    at = parse_instant(datetime(2026, 7, 1, 12, tzinfo=UTC))
    assert format_instant(at) == "2026-07-01T12:00:00Z"
    assert format_instant(at + 7) == "2026-07-01T12:00:00.007Z"
    assert format_instant(at, "Asia/Kathmandu") == "2026-07-01T17:45:00+05:45"
    assert format_instant(at, "America/St_Johns") == "2026-07-01T09:30:00-02:30"


@pytest.mark.parametrize("at", [-1, MAX_AT + 1, 10**100])
def test_instant_outside_its_years_is_not_shown(at):
    with pytest.raises(InvalidValue, match="1970 to 9999"):
        format_instant(at)


def test_unknown_zone_is_refused_with_similar_names():
    with pytest.raises(InvalidValue, match="Europe/Berlin"):
        format_instant(0, "Europe/Berlinn")
    for bad in ("", "America", "../UTC", "a\0b", "\ud800", "x" * 9999, 5, ["UTC"]):
        with pytest.raises(InvalidValue):
            format_instant(0, bad)
    with pytest.raises(InvalidValue, match="past the year 9999"):
        format_instant(MAX_AT, "Asia/Tokyo")


def test_duration_counts_from_now_in_either_direction_and_an_instant_is_itself() -> None:
    assert (Moment(after_ms=3).resolved(100), Moment(after_ms=3).ago(100)) == (103, 97)
    assert (Moment(at=7).resolved(100), Moment(at=7).ago(100)) == (7, 7)


def test_time_that_must_be_ahead_is_not_now() -> None:
    assert Moment(at=101).ahead("until", 100) == 101
    for moment in (Moment(at=100), Moment(at=99), Moment(after_ms=0)):
        with pytest.raises(InvalidValue, match=r"until is .*, which is not in the future"):
            moment.ahead("until", 100)
