from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core import duration
from headway.core.duration import (
    MAX_DURATION_MS,
    check_duration,
    format_duration,
    parse_duration,
    read_retry_after,
)
from headway.core.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("20m", 1_200_000),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        (" 250ms ", 250),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("1.5h", 5_400_000),
        ("0.1s", 100),
        ("0s", 0),
        ("1w2d3h4m5s6ms", 788_645_006),
        ("36525d", MAX_DURATION_MS),
    ],
)
def test_duration_is_read_from_numbers_with_units(text, ms):
    assert parse_duration(text) == ms


def test_timedelta_is_read_unchanged():
    assert parse_duration(timedelta(hours=1, milliseconds=7)) == 3_600_007


@pytest.mark.parametrize("short", [timedelta(microseconds=1), "0.0005s", "0.2ms"])
def test_fraction_of_a_millisecond_is_rounded_up(short):
    assert parse_duration(short) == 1


@pytest.mark.parametrize(
    "bad",
    [
        *[
            "",
            "  ",
            "20",
            "m",
            "-5m",
            "nan",
            "inf",
            "1e9s",
            "20 minutes",
            "1h1h",
            "30m1h",
            "1H",
            "1.h",
        ],
        *["٣m", "5m\0", "1h,30m", "9" * 10_000 + "s", "36526d", "9" * 18 + "w", "1h" * 5000],
        *[timedelta(days=-1), timedelta.max, 20, 20.0, float("nan"), None, True, b"20m", ["20m"]],
    ],
)
def test_invalid_duration_is_refused_with_a_hint(bad):
    with pytest.raises(InvalidValue) as refused:
        parse_duration(bad)
    assert refused.value.hint
    assert len(str(refused.value)) < 300


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=MAX_DURATION_MS))
def test_formatted_duration_is_read_back(ms):
    assert parse_duration(format_duration(ms, parts=6)) == ms


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (5_400_000, "1h 30m"),
        (5_401_000, "1h 30m"),
        (604_830_000, "1w"),
        (61_001, "1m 1s"),
        (7, "7ms"),
        (-61_000, "-1m 1s"),
    ],
)
def test_duration_is_shown_by_its_two_largest_units(ms, text):
    assert format_duration(ms) == text


def test_long_texts_are_not_cached() -> None:
    duration._read.cache_clear()
    assert parse_duration("1s" + " " * 1_000_000) == 1_000
    assert duration._read.cache_info().currsize == 0
    assert parse_duration("1s") == parse_duration("1s") == 1_000
    assert duration._read.cache_info().currsize == 1


def test_option_may_be_its_minimum_and_not_shorter() -> None:
    assert check_duration("per", "1s", least=1_000) == 1_000
    with pytest.raises(InvalidValue, match="per is 999ms"):
        check_duration("per", "999ms", least=1_000)


@pytest.mark.parametrize(
    ("header", "ms"),
    [
        (" 7 ", 7_000),
        ("0", 0),
        ("3601", 3_600_000),
        ("Thu, 01 Jan 1970 00:00:09 GMT", 4_000),
        ("Thu, 01 Jan 1970 00:00:04 GMT", 0),
        ("Thu, 01 Jan 1970 02:00:00 GMT", 3_600_000),
        ("-1", None),
        ("soon", None),
        ("", None),
    ],
)
def test_delay_that_a_reply_requests_is_bounded(header: str, ms: int | None) -> None:
    assert read_retry_after(header, 5_000) == ms
