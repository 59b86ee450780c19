from __future__ import annotations

import pytest

from tests.cli.conftest import Headway

SUBJECTS = {"public URL", "signing key", "signal URLs"}


def findings(headway: Headway) -> dict[str, tuple[str, str]]:
    told = headway("doctor", "--json").document["findings"]
    return {
        one["subject"]: (one["health"], one["found"]) for one in told if one["subject"] in SUBJECTS
    }


def test_signal_urls_are_not_checked_without_a_token(headway: Headway):
    headway("migrate")
    assert findings(headway) == {}


def test_both_settings_are_reported_missing_with_a_token(headway: Headway):
    headway("migrate")
    assert headway("token", "create", "desk", "--role", "producer").code == 0
    assert findings(headway) == {
        "public URL": ("warning", "not set: signal URLs are not reachable from outside"),
        "signing key": ("warning", "not set: signal URLs require a token"),
    }


def test_both_settings_are_accepted_and_the_key_is_not_shown(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
):
    headway("migrate")
    headway("token", "create", "desk", "--role", "producer")
    monkeypatch.setenv("HEADWAY_PUBLIC_URL", "https://hw.example.org")
    monkeypatch.setenv("HEADWAY_SIGNING_KEY", "k" * 32)
    found = findings(headway)
    assert found == {"signal URLs": ("ok", "signed, under https://hw.example.org")}
