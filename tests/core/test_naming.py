"""Error messages for unknown names, and whole numbers in texts."""

from __future__ import annotations

import pytest

from headway.core import naming
from headway.core.errors import InvalidValue
from headway.core.naming import (
    MAX_NAME,
    check_host,
    counted,
    did_you_mean,
    read_whole,
    whole_number,
)


def test_hint_names_the_nearest_known_name_or_all_of_them() -> None:
    known = {"calls": 1, "lanes": 2}
    assert did_you_mean("cals", known) == "did you mean calls?"
    assert did_you_mean("x", known) == ""
    assert did_you_mean("x", known, "there are calls, lanes") == "there are calls, lanes"
    assert did_you_mean("jobs", ["jobs2", "job"], most=2) == "did you mean jobs2 or job?"
    assert did_you_mean("jobs", ["jobs2", "job"]) == "did you mean jobs2?"


def test_only_the_start_of_a_long_name_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def nearest(name: str, known: list[str], n: int) -> list[str]:
        compared.append(name)
        return known[:n]

    monkeypatch.setattr(naming, "get_close_matches", nearest)
    did_you_mean("x" * 16_000_000, ["calls"])
    assert compared == ["x" * MAX_NAME]


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1.0", "1_0", "²", "٣", "1234567890"])
def test_only_some_ascii_digits_are_a_whole_number(text: str) -> None:
    assert whole_number(text) is None
    with pytest.raises(InvalidValue, match="timeout_ms is "):
        read_whole("timeout_ms", text)


def test_whole_number_has_a_greatest_length_and_a_least_value() -> None:
    assert whole_number("007") == 7
    assert read_whole("timeout_ms", "123456789012345", least=1, digits=15) == 123_456_789_012_345
    with pytest.raises(InvalidValue) as refused:
        read_whole("timeout_ms", "0", least=1)
    assert refused.value.hint == "it must be a whole number, 1 or more"


@pytest.mark.parametrize("name", ["", "db", "db.example.com", "bücher.example", "::1", "x" * 63])
def test_name_of_a_host_is_returned(name: str) -> None:
    assert check_host(name) == name


@pytest.mark.parametrize("name", ["db..example", ".db", "x" * 64, "\udcff"])
def test_name_that_cannot_be_resolved_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(InvalidValue, match=r"is not the name of a host \(each part has"):
        check_host(name)


def test_noun_after_a_number_has_the_form_for_it() -> None:
    assert [counted(n, "job") for n in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
    assert [counted(n, "gate is", "gates are") for n in ("1", "1,000")] == [
        "1 gate is",
        "1,000 gates are",
    ]
