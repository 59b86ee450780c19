"""Error messages for unknown names."""

from __future__ import annotations

import pytest

from headway.core import naming
from headway.core.naming import MAX_NAME, did_you_mean


def test_hint_names_the_nearest_known_name_or_all_of_them() -> None:
    known = {"calls": 1, "lanes": 2}
    assert did_you_mean("cals", known) == "did you mean calls?"
    assert did_you_mean("cals", known, before="lane:") == "did you mean lane:calls?"
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
