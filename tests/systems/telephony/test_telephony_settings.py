"""The settings table [telephony]: what it accepts, and what it never shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from headway.core.errors import InvalidValue
from headway.runtime.settings_table import read_table
from headway.systems.telephony.phone import check_phone
from headway.systems.telephony.providers import read_telephony
from headway.systems.telephony.twilio import TwilioSettings
from headway.systems.telephony.vonage import VonageSettings
from tests.systems.telephony.accounts import (
    ACCOUNT,
    APPLICATION,
    NEXT_TOKEN,
    SECRET,
    TOKEN,
    pem,
    private_key,
)

BY_TWILIO = {"account_sid": ACCOUNT, "auth_token": TOKEN}
BY_VONAGE = {"application_id": APPLICATION, "private_key": pem()}
KEY = "SK" + "9" * 32


async def test_exchange_has_the_configured_providers_in_their_order() -> None:
    telephony = read_telephony({"vonage": BY_VONAGE, "twilio": BY_TWILIO})
    assert list(telephony.voices) == ["vonage", "twilio"]
    assert list(telephony.texts) == ["twilio"]
    assert [one.name for one in telephony.voices.values()] == ["vonage", "twilio"]
    await telephony.close()


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"account_sid": "AC1"}, "telephony.twilio.account_sid"),
        ({"auth_token": None}, "auth_tokens"),
        ({"auth_tokens": [TOKEN]}, "auth_tokens"),
        ({"auth_token": "short"}, "telephony.twilio.auth_token"),
        ({"api_key": KEY}, "api_secret"),
        ({"api_key": "key", "api_secret": "of the key"}, "telephony.twilio.api_key"),
        ({"base_url": "api.twilio.com"}, "telephony.twilio.base_url"),
        ({"base_url": "https://"}, "telephony.twilio.base_url"),
        ({"base_url": "https://a.test/?b"}, "telephony.twilio.base_url"),
        ({"base_url": "https://a.test", "edge": "dublin"}, "edge"),
        ({"region": "a.b"}, "telephony.twilio.region"),
        ({"timeout": "soon"}, "telephony.twilio.timeout"),
        ({"timeout": "3m"}, "telephony.twilio.timeout"),
        ({"token": TOKEN}, "telephony.twilio.token"),
    ],
)
def test_invalid_twilio_settings_are_named_and_not_shown(more: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_telephony({"twilio": {**BY_TWILIO, **more}})
    assert place in str(refused.value)
    assert TOKEN not in str(refused.value)


def test_text_in_place_of_a_providers_table_is_not_shown() -> None:
    with pytest.raises(InvalidValue, match=r"telephony\.twilio is str, not a table") as refused:
        read_telephony({"twilio": TOKEN})
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"account_sid": "AC1"}, "account_sid: it should be text that matches ^AC[0-9a-fA-F]{32}$"),
        ({"timeot": "3s"}, "timeot: there is no such setting (did you mean timeout?)"),
        ({"colour": 3}, "colour: there is no such setting (known: account_sid, auth_token, "),
    ],
)
def test_invalid_provider_settings_say_what_is_valid(more: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_telephony({"twilio": {**BY_TWILIO, **more}})
    assert str(refused.value).startswith(f"telephony.twilio.{told}")


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"application_id": "?"}, "telephony.vonage.application_id"),
        ({"private_key": "nowhere.key"}, "telephony.vonage.private_key"),
        ({"private_key": "-----BEGIN PRIVATE KEY-----\nMIIE\n"}, "telephony.vonage.private_key"),
        ({"signature_secret": "short"}, "telephony.vonage.signature_secret"),
    ],
)
def test_invalid_vonage_settings_are_named_and_not_shown(more: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_telephony({"vonage": {**BY_VONAGE, **more}})
    assert place in str(refused.value)
    assert "MIIE" not in str(refused.value)


async def test_private_key_can_be_in_a_file_and_in_either_form_of_pem(tmp_path: Path) -> None:
    old = private_key().private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    )
    file = tmp_path / "private"
    for text in (old.decode(), pem()):
        file.write_text(text)
        for written in (str(file), text):
            table = read_table("x", VonageSettings, {**BY_VONAGE, "private_key": written})
            assert table.private_key == pem()
            await read_telephony({"vonage": {**BY_VONAGE, "private_key": written}}).close()


def test_no_secret_is_in_the_repr_of_settings_and_providers() -> None:
    secrets = {"api_key": KEY, "api_secret": "of the key", "auth_token": TOKEN}
    shown = [
        repr(read_table("x", TwilioSettings, {**BY_TWILIO, **secrets})),
        repr(read_table("x", VonageSettings, {**BY_VONAGE, "signature_secret": SECRET})),
    ]
    telephony = read_telephony({"twilio": {**BY_TWILIO, **secrets}, "vonage": BY_VONAGE})
    shown += [repr(one) for one in telephony.voices.values()]
    for secret in (TOKEN, "of the key", SECRET, pem().splitlines()[1]):
        assert not [one for one in shown if secret in one]


def test_several_tokens_can_be_comma_separated_and_a_timeout_is_a_duration() -> None:
    written = {"account_sid": ACCOUNT, "auth_tokens": f"{NEXT_TOKEN}, {TOKEN}", "timeout": "2.5s"}
    table = read_table("x", TwilioSettings, written)
    assert (table.tokens, table.timeout) == ((NEXT_TOKEN, TOKEN), 2500)
    assert table.user == (ACCOUNT, NEXT_TOKEN)


@pytest.mark.parametrize("text", ["+14155550100", "+4915112345678", "+390612345678"])
def test_full_number_is_accepted(text: str) -> None:
    assert check_phone("the phone", text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a number in E.164"),
        ("14155550100", "not a number in E.164"),
        ("+04155550100", "not a number in E.164"),
        ("+1234567890123456", "not a number in E.164"),
        ("+1 415 555", "not a number in E.164"),
        ("+1415555a", "not a number in E.164"),
        ("+14155550100\n", "not a number in E.164"),
        ("+14155550100;ext=5", "not a number in E.164"),
        ("tel:+14155550100", "not a number in E.164"),
        ("+1415555\u0660\u0661\u0660\u0660", "not a number in E.164"),
        ("+99912345678", "a number with an unknown country code"),
        ("+1415555010", "too short for its country"),
        ("+15550100", "too short for its country"),
        ("+141555501000", "too long for its country"),
    ],
)
def test_undialable_number_is_refused_by_name_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        check_phone("the phone", text)
    assert refused.value.message == f"the phone is {text!r}, which is {why}"
