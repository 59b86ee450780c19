from __future__ import annotations

import pytest

from headway.cli.terminal import LocalClock
from headway.core.errors import InvalidValue
from headway.core.instant import Moment, optional_moment, parse_instant, parse_moment
from headway.core.local_time import MAX_AT


def test_moment_is_an_instant_or_a_duration_from_now():
    assert parse_moment("--due", "20m") == Moment(after_ms=1_200_000)
    at = parse_instant("2026-12-01T10:00-08:00")
    assert parse_moment("--due", "2026-12-01T10:00-08:00") == Moment(at=at)
    assert optional_moment("--due", None) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tomorrow", "--due: the instant 'tomorrow' is not understood"),
        ("2026-12-01T10:00", "--due: the instant '2026-12-01T10:00' has no offset"),
        ("20 parsecs", "--due: the duration '20 parsecs' is not understood"),
        ("", "--due: the instant '' is not understood"),
    ],
)
def test_invalid_time_is_refused_with_the_option(text: str, said: str):
    with pytest.raises(InvalidValue) as caught:
        parse_moment("--due", text)
    assert said in str(caught.value)


def test_times_are_shown_in_the_zones_local_time():
    clock = LocalClock("America/New_York")
    at = parse_instant("2026-07-01T12:00Z")
    assert clock.at(at) == "2026-07-01 08:00:00-04:00"
    assert clock.around(at, at - 90_000) == "2026-07-01 08:00:00-04:00 (in 1m 30s)"
    assert clock.around(at, at + 90_000) == "2026-07-01 08:00:00-04:00 (1m 30s ago)"


def test_no_time_is_shown_as_empty_and_the_year_9999_as_indefinite():
    for clock in (LocalClock("UTC"), LocalClock(None)):
        assert clock.at(None) == ""
        assert clock.around(MAX_AT, 0) == "indefinitely"
        assert clock.at(-1) == "-1 ms"


def test_system_zone_shows_the_same_instant():
    at = parse_instant("2026-07-01T12:00:00.250Z")
    assert parse_instant(LocalClock(None).at(at, exact=True).replace(" ", "T")) == at
