"""The settings table [hooks]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.cli.settings import load_settings
from headway.core.errors import InvalidValue
from headway.server.hooks.providers import read_hooks
from headway.server.hooks.twilio import Twilio
from tests.server.hooks.senders import SECRET, TOKEN, Mailer


def test_no_provider_is_accepted_without_settings() -> None:
    assert read_hooks({}) == {}


def test_each_provider_is_configured_under_its_name() -> None:
    table = {
        "twilio": {"auth_tokens": [TOKEN]},
        "sendgrid": {"public_keys": Mailer().public_key},
        "standard": {"payments": {"keys": [SECRET]}, "e-sign": {"keys": SECRET}},
    }
    assert sorted(read_hooks(table)) == ["e-sign", "payments", "sendgrid", "twilio"]


def test_several_keys_can_be_one_text_as_in_a_variable() -> None:
    provider = read_hooks({"twilio": {"auth_tokens": f"{TOKEN}, {TOKEN[::-1]},"}})["twilio"]
    assert provider == Twilio(auth_tokens=(TOKEN, TOKEN[::-1]))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"twillio": {}}, "hooks.twillio"),
        ({"twilio": {"auth_token": TOKEN}}, "hooks.twilio.auth_token"),
        ({"twilio": {"auth_tokens": [7]}}, "hooks.twilio.auth_tokens.0"),
        ({"twilio": {"auth_tokens": [""]}}, "hooks.twilio.auth_tokens.0"),
        ({"twilio": {}}, "hooks.twilio: there is no key"),
        ({"sendgrid": {}}, "hooks.sendgrid: there is no key"),
        ({"standard": {"x": {}}}, "hooks.standard.x: there is no key"),
        ({"standard": {"twilio": {"keys": SECRET}}}, "belongs to another provider"),
        ({"standard": {"a/b": {"keys": SECRET}}}, "last part of a URL"),
        ({"standard": {"x": {"keys": SECRET, "tolerance": "soon"}}}, "hooks.standard.x.tolerance"),
    ],
)
def test_unusable_settings_are_refused_by_their_place(table: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        read_hooks(table)
    assert said in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_keys_are_in_no_repr() -> None:
    table = {"twilio": {"auth_tokens": TOKEN}, "standard": {"x": {"keys": SECRET}}}
    shown = repr(read_hooks(table))
    assert TOKEN not in shown
    assert "secrets" not in shown


def test_variables_add_to_the_file_and_override_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["[hooks.twilio]", 'auth_tokens = ["of-the-file"]', "[hooks.standard.payments]"]
    Path("headway.toml").write_text("\n".join([*lines, f'keys = ["{SECRET}"]', ""]))
    monkeypatch.setenv("HEADWAY_HOOKS__TWILIO__AUTH_TOKENS", f"{TOKEN},{TOKEN[::-1]}")
    monkeypatch.setenv("HEADWAY_SIGNING_KEY", "k" * 32)
    settings = load_settings()
    found = read_hooks(settings.hooks)
    assert found["twilio"] == Twilio(auth_tokens=(TOKEN, TOKEN[::-1]))
    assert sorted(found) == ["payments", "twilio"]
    assert settings.signing_keys == ("k" * 32,)
    for secret in (TOKEN, SECRET, "k" * 32):
        assert secret not in repr(settings)
