"""Twilio's signature, compared with Twilio's own validator."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twilio.request_validator import RequestValidator

from headway.core.errors import Unauthenticated
from headway.server.hooks.request import FORM
from headway.server.hooks.twilio import Twilio, both_ports
from tests.server.hooks import byte_flips
from tests.server.hooks.senders import (
    CALL,
    NOW,
    TOKEN,
    Sent,
    call_status,
    from_twilio,
    json_from_twilio,
)

URL = "https://hw.example.org/hooks/twilio"
OTHER = "fedcba9876543210fedcba9876543210"
FIELDS = call_status("completed", 3, CallDuration="41", From="+14155550100", To="+493012345")


def accepted(sent: Sent, *tokens: str, shared: tuple[str, ...] = ()) -> bool:
    try:
        Twilio(auth_tokens=tokens or (TOKEN,), shared_keys=shared).verify(sent.came(), NOW)
    except Unauthenticated:
        return False
    return True


def test_signature_of_twilios_own_documentation_is_accepted() -> None:
    fields = {
        "CallSid": "CA1234567890ABCDE",
        "Caller": "+14158675309",
        "Digits": "1234",
        "From": "+14158675309",
        "To": "+18005551212",
    }
    sent = Sent(
        url="https://mycompany.com/myapp.php?foo=1&bar=2",
        headers=(
            ("Content-Type", FORM),
            ("X-Twilio-Signature", "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
        ),
        body=urlencode(fields).encode(),
    )
    assert accepted(sent, "12345")
    assert not accepted(sent, "12346")


def test_flipping_any_byte_of_body_url_or_signature_refuses() -> None:
    sent = from_twilio(f"{URL}?ref=a%3A1", FIELDS)
    assert accepted(sent)
    changed = [
        *byte_flips.bodies(sent),
        *byte_flips.urls(sent),
        *byte_flips.headers(sent, "X-Twilio-Signature"),
    ]
    assert len(changed) > 150
    assert [one for one in changed if accepted(one)] == []


def test_signature_missing_empty_or_sent_twice_refuses() -> None:
    sent = from_twilio(URL, FIELDS)
    assert not accepted(sent.with_header("X-Twilio-Signature", None))
    assert not accepted(sent.with_header("X-Twilio-Signature", ""))
    assert not accepted(sent.twice("X-Twilio-Signature"))
    assert not accepted(sent.twice("Content-Type"))


def test_another_scheme_or_host_refuses() -> None:
    sent = from_twilio(URL, FIELDS)
    for other in (URL.replace("https:", "http:"), URL.replace("hw.", "hv.")):
        assert not accepted(replace(sent, url=other))


def test_signed_port_must_be_the_requested_one() -> None:
    at_8443, at_9443 = (URL.replace(".org", f".org:{port}") for port in (8443, 9443))
    sent = from_twilio(at_8443, FIELDS)
    assert accepted(sent)
    assert not accepted(replace(sent, url=at_9443))
    assert not accepted(replace(sent, url=URL))
    # Some Twilio products sign the URL without the port, whatever URL they call.
    assert accepted(from_twilio(at_8443, FIELDS, signed_url=URL))


def test_signature_over_the_url_with_its_default_port_is_accepted_without_it() -> None:
    with_port = URL.replace("example.org", "example.org:443")
    assert accepted(from_twilio(URL, FIELDS, signed_url=with_port))
    plain = URL.replace("https:", "http:")
    assert accepted(
        from_twilio(plain, FIELDS, signed_url=plain.replace("example.org", "example.org:80"))
    )
    assert not accepted(from_twilio(plain, FIELDS, signed_url=with_port))


def test_order_of_fields_does_not_matter_and_repeated_values_count_once() -> None:
    pairs = list(FIELDS.items())
    sent = from_twilio(URL, pairs)
    assert accepted(replace(sent, body=urlencode(pairs[::-1]).encode()))
    assert accepted(replace(sent, body=urlencode([*pairs, pairs[0]]).encode()))
    assert not accepted(replace(sent, body=urlencode([*pairs, ("CallStatus", "busy")]).encode()))


def test_unicode_and_empty_values_are_signed_unchanged() -> None:
    said = {"Body": "Grüße, 你好 🎉", "CallSid": CALL, "Empty": ""}
    assert accepted(from_twilio(URL, said))
    assert not accepted(from_twilio(URL, {**said, "Empty": "x"}, signed_url=URL + "?"))
    dropped = replace(from_twilio(URL, said), body=urlencode(said).replace("&Empty=", "").encode())
    assert accepted(dropped) is False


def test_any_of_several_tokens_is_accepted_and_none_refuses() -> None:
    sent = from_twilio(URL, FIELDS, token=OTHER)
    assert accepted(sent, TOKEN, OTHER)
    assert not accepted(sent, TOKEN)
    with pytest.raises(Unauthenticated):
        Twilio(auth_tokens=()).verify(sent.came(), NOW)


def test_json_is_accepted_by_its_hash_in_the_signed_url() -> None:
    sent = json_from_twilio(URL, {"status": "ok"})
    assert accepted(sent)
    assert [
        one for one in (*byte_flips.bodies(sent), *byte_flips.urls(sent)) if accepted(one)
    ] == []


def test_json_without_its_hash_refuses_and_an_empty_body_needs_none() -> None:
    signature = RequestValidator(TOKEN).compute_signature(URL, {})
    empty = Sent(url=URL, headers=(("X-Twilio-Signature", signature),))
    assert accepted(empty)
    said = empty.with_header("Content-Type", "application/json")
    assert accepted(said)
    assert not accepted(replace(said, body=b"{}"))


def test_form_cannot_be_passed_off_as_json_nor_json_as_a_form() -> None:
    form = from_twilio(URL, FIELDS)
    assert not accepted(form.with_header("Content-Type", "application/json"))
    told = json_from_twilio(URL, {"CallStatus": "completed"})
    assert not accepted(told.with_header("Content-Type", FORM))


def test_form_may_name_its_encoding() -> None:
    sent = from_twilio(URL, FIELDS).with_header("Content-Type", f"{FORM.title()} ; charset=UTF-8")
    assert accepted(sent)


def test_shared_key_is_used_only_when_the_webhook_says_so() -> None:
    settings = "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256"
    signature = RequestValidator(OTHER).compute_signature(URL, FIELDS, "HMAC_SHA256")
    sent = from_twilio(URL, FIELDS).with_header("X-Twilio-Signature", signature)
    said = sent.with_header("X-Twilio-Webhooks-Signature-Settings", settings)
    assert accepted(said, shared=(OTHER,))
    assert not accepted(said, OTHER)
    assert not accepted(sent, shared=(OTHER,))
    unknown = settings.replace("SHA256", "MD5")
    assert not accepted(
        said.with_header("X-Twilio-Webhooks-Signature-Settings", unknown), shared=(OTHER,)
    )


@pytest.mark.parametrize(
    ("url", "without", "with_port"),
    [
        ("https://a/x?y", "https://a/x?y", "https://a:443/x?y"),
        ("http://a:80/", "http://a/", "http://a:80/"),
        ("http://a?b=c:1/", "http://a?b=c:1/", "http://a:80?b=c:1/"),
        ("https://[::1]/x", "https://[::1]/x", "https://[::1]:443/x"),
        ("https://[::1]:99/x", "https://[::1]/x", "https://[::1]:99/x"),
    ],
)
def test_both_ports_of_a_url(url: str, without: str, with_port: str) -> None:
    assert both_ports(url) == (without, with_port)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
ports = st.sampled_from(["", ":443", ":80", ":8443"])


@given(st.dictionaries(texts, texts, max_size=8), texts, ports, ports, st.booleans())
def test_twilios_own_validator_agrees(
    fields: dict[str, str], path: str, called: str, signed: str, spoil: bool
) -> None:
    tail = f"/{urlencode({'p': path})}?{urlencode({'q': path})}"
    url, signed_url = (f"https://hw.example.org{port}{tail}" for port in (called, signed))
    # Python's form parser skips fields with neither a name nor a value.
    fields = {name: value for name, value in fields.items() if name or value}
    sent = from_twilio(url, fields, signed_url=signed_url)
    told = {**fields, "spoilt": "yes"} if spoil else fields
    came = replace(sent, body=urlencode(told).encode())
    signature = sent.header("X-Twilio-Signature")
    assert accepted(came) == RequestValidator(TOKEN).validate(url, told, signature)
