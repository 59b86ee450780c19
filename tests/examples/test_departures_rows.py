"""Which departures rows are valid, and how the day is sped up."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.departures import checker, flight, pace

DAY = Path(flight.__file__).parent / "departures-2013-01-15.jsonl"
GOOD: dict[str, Any] = {
    "flight": "UA1018",
    "carrier": "UA",
    "aircraft": "N37277",
    "origin": "EWR",
    "dest": "IAH",
    "due_at": "2013-01-15T05:25:00-05:00",
    "departure_delay_min": -7,
    "air_time_min": 229,
    "distance_miles": 1400,
}
CHANGES: list[tuple[str, object, bool]] = [
    ("aircraft", None, True),
    ("aircraft", "D-ABCD", True),
    ("air_time_min", None, True),
    ("due_at", "2013-01-15T10:25:00Z", True),
    ("due_at", "2013-01-15 05:25:00.25-05:00", True),
    ("departure_delay_min", "soon", True),
    ("flight", "", False),
    ("flight", None, False),
    ("flight", "UA 1018", False),
    ("flight", "UA1018\n", False),
    ("flight", "{origin}", False),
    ("carrier", 7, False),
    ("origin", "EWR\x00", False),
    ("origin", ["EWR"], False),
    ("dest", "I" * 17, False),
    ("aircraft", "", False),
    ("aircraft", 37277, False),
    ("due_at", "2013-01-15T05:25:00", False),
    ("due_at", "2013-02-30T05:25:00-05:00", False),
    ("due_at", "tomorrow", False),
    ("due_at", None, False),
    ("due_at", 1358245500, False),
    ("air_time_min", 0, False),
    ("air_time_min", -1, False),
    ("air_time_min", 229.0, False),
    ("air_time_min", "229", False),
    ("air_time_min", True, False),
    ("air_time_min", 2881, False),
]


def is_flight(row: object) -> bool:
    try:
        flight.read_flight(row)
    except flight.MalformedRow:
        return False
    return True


@pytest.mark.parametrize(("name", "value", "fine"), CHANGES)
def test_example_and_checker_agree_on_what_a_flight_is(
    name: str, value: object, fine: bool
) -> None:
    row = {**GOOD, name: value}
    assert is_flight(row) is fine
    day = checker.read_day([json.dumps(row).encode()], [], [], 600)
    assert (not day.malformed) is fine


def spoilt_lines() -> st.SearchStrategy[bytes]:
    """Return a valid line in which some bytes are replaced by random or tricky ones."""
    line = json.dumps(GOOD).encode()
    texts = [
        b"",
        b"NaN",
        b"null",
        b"0",
        b"\\ud800",
        b"\xff",
        b'"',
        b"}",
        b"\xef\xbb\xbf",
        b"-",
        b".",
    ]
    return st.builds(
        lambda at, cut, put: line[:at] + put + line[at + cut :],
        st.integers(0, len(line)),
        st.integers(0, 12),
        st.sampled_from(texts) | st.binary(max_size=3).filter(lambda put: b"\n" not in put),
    )


def imports(line: bytes) -> bool:
    try:
        return is_flight(msgspec.json.decode(line))
    except ValueError:
        return False


@settings(max_examples=1_500, deadline=None)
@given(spoilt_lines())
def test_example_and_checker_agree_on_malformed_lines(line: bytes) -> None:
    day = checker.read_day([line], [], [], 600)
    assert bool(day.rows) is imports(line)


@pytest.mark.parametrize("name", checker.PLANNED)
def test_row_without_a_field_is_malformed_and_says_which(name: str) -> None:
    row = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(flight.MalformedRow, match=f"missing required field `{name}`"):
        flight.read_flight(row)
    assert checker.read_day([json.dumps(row).encode()], [], [], 600).malformed == {1}


@pytest.mark.parametrize("row", [None, 1, "text", [], [GOOD], {}])
def test_row_that_is_not_an_object_is_malformed(row: object) -> None:
    assert not is_flight(row)
    assert checker.read_day([json.dumps(row).encode()], [], [], 600).malformed == {1}


def test_day_has_894_flights_13_of_them_cancelled_and_2_without_aircraft() -> None:
    flights = [flight.read_flight(json.loads(line)) for line in DAY.read_text().splitlines()]
    assert len({each.identity for each in flights}) == len(flights) == 894
    assert sum(each.cancelled for each in flights) == 13
    assert sum(each.aircraft is None for each in flights) == 2


def test_aircraft_is_away_for_twice_its_flight_time_and_an_hour() -> None:
    assert flight.away(229) == timedelta(hours=8, minutes=38)


def test_times_and_durations_of_the_day_shrink_by_the_speed() -> None:
    opens = datetime(2013, 1, 15, 10, tzinfo=UTC)
    start = datetime(2030, 6, 1, tzinfo=UTC)
    asked = {
        "DEPARTURES_START": start.isoformat(),
        "DEPARTURES_OPENS": opens.isoformat(),
    }
    day = pace.pace_from(opens + timedelta(hours=1), 600, asked)
    assert day.moment(opens) == start
    assert day.moment(opens + timedelta(hours=1)) == start + timedelta(seconds=6)
    assert day.moment(opens - timedelta(hours=1)) == start - timedelta(seconds=6)
    assert day.span(timedelta(seconds=75)) == timedelta(milliseconds=125)


def test_import_without_settings_starts_the_day_with_its_first_row() -> None:
    first = datetime(2013, 1, 15, 10, tzinfo=UTC)
    assert pace.speed_from({}) == 600
    day = pace.pace_from(first, 600, {})
    assert day.moment(first) == day.start_at


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "fast", "", "10001"])
def test_invalid_speed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number above 0"):
        pace.speed_from({"DEPARTURES_SPEED": text})


@pytest.mark.parametrize("name", ["DEPARTURES_START", "DEPARTURES_OPENS"])
@pytest.mark.parametrize("text", ["now", "2013-01-15T05:00:00"])
def test_invalid_start_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is"):
        pace.pace_from(datetime(2013, 1, 15, tzinfo=UTC), 600, {name: text})
