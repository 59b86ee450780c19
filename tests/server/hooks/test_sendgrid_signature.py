"""SendGrid's signature, compared with SendGrid's own check."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from hypothesis import given
from hypothesis import strategies as st
from sendgrid.helpers.eventwebhook import EventWebhook

from headway.core.errors import InvalidValue, Unauthenticated
from headway.server.hooks.providers import read_hooks
from tests.server.hooks import byte_flips
from tests.server.hooks.senders import NOW, Mailer, Sent, public_text

URL = "https://hw.example.org/hooks/sendgrid"
SIGNATURE = "X-Twilio-Email-Event-Webhook-Signature"
TIMESTAMP = "X-Twilio-Email-Event-Webhook-Timestamp"
MAILER, OTHER = Mailer(), Mailer()
EVENTS = [{"event": "delivered", "sg_event_id": "e1", "sg_message_id": "m1.filter1", "ü": "你好"}]

# The test vector of SendGrid's own library: key, body, signature and timestamp.
VECTOR_KEY = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+"
    "2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
)
VECTOR_SIGNATURE = (
    "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEA"
    "yBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM="
)
VECTOR_AT = "1600112502"
VECTOR_BODY = (
    b'[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address","sg_event_id":'
    b'"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA","sg_message_id":'
    b'"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0","smtp-id":'
    b'"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]\r\n'
)


def accepted(sent: Sent, *mailers: Mailer, now: int = NOW, tolerance: str = "5m") -> bool:
    keys = [one.public_key for one in mailers or (MAILER,)]
    table = {"sendgrid": {"public_keys": keys, "tolerance": tolerance}}
    try:
        read_hooks(table)["sendgrid"].verify(sent.came(), now)
    except Unauthenticated:
        return False
    return True


def test_vector_of_sendgrids_own_library_is_accepted_only_at_its_time() -> None:
    provider = read_hooks({"sendgrid": {"public_keys": [VECTOR_KEY]}})["sendgrid"]
    headers = ((SIGNATURE, VECTOR_SIGNATURE), (TIMESTAMP, VECTOR_AT))
    sent = Sent(url=URL, headers=headers, body=VECTOR_BODY)
    provider.verify(sent.came(), int(VECTOR_AT) * 1000)
    with pytest.raises(Unauthenticated, match="too old"):
        provider.verify(sent.came(), NOW)
    with pytest.raises(Unauthenticated, match="signature is wrong"):
        provider.verify(replace(sent, body=VECTOR_BODY.strip()).came(), int(VECTOR_AT) * 1000)


def test_flipping_any_byte_of_body_signature_or_timestamp_refuses() -> None:
    sent = MAILER.sends(URL, EVENTS)
    assert accepted(sent)
    changed = [
        *byte_flips.bodies(sent),
        *byte_flips.headers(sent, SIGNATURE),
        *byte_flips.headers(sent, TIMESTAMP),
    ]
    assert [one for one in changed if accepted(one)] == []


def test_signature_or_timestamp_missing_or_sent_twice_refuses() -> None:
    sent = MAILER.sends(URL, EVENTS)
    for name in (SIGNATURE, TIMESTAMP):
        assert not accepted(sent.with_header(name, None))
        assert not accepted(sent.with_header(name, ""))
        assert not accepted(sent.twice(name))


@pytest.mark.parametrize("signature", ["x", "AAAA", "é", "A" * 5_000, "MEUCIGHQ="])
def test_malformed_signature_refuses(signature: str) -> None:
    assert not accepted(MAILER.sends(URL, EVENTS).with_header(SIGNATURE, signature))


def test_times_within_the_tolerance_are_accepted_and_others_refuse() -> None:
    sent = MAILER.sends(URL, EVENTS)
    for away_ms in (-300_000, 0, 300_000):
        assert accepted(sent, now=NOW + away_ms)
    for away_ms in (-301_000, 300_001):
        assert not accepted(sent, now=NOW + away_ms)
    assert accepted(sent, now=NOW + 3_600_000, tolerance="1h")


@pytest.mark.parametrize("timestamp", ["", "-1", "1e9", "\u0661795000000", "9" * 40, "1.5"])
def test_timestamp_that_is_not_a_number_of_seconds_refuses(timestamp: str) -> None:
    assert not accepted(MAILER.sends(URL, EVENTS).with_header(TIMESTAMP, timestamp))


def test_any_of_several_keys_is_accepted() -> None:
    sent = MAILER.sends(URL, EVENTS)
    assert accepted(sent, OTHER, MAILER)
    assert not accepted(sent, OTHER)


def test_empty_body_is_signed_like_any_other() -> None:
    assert accepted(MAILER.signs(URL, b""))
    assert not accepted(replace(MAILER.signs(URL, b""), body=b" "))


@pytest.mark.parametrize(
    "key",
    [
        "no key at all",
        b64encode(bytes(91)).decode(),
        public_text(generate_private_key(SECP384R1())),
    ],
)
def test_key_that_is_not_p256_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(InvalidValue, match="not a P-256 public key") as caught:
        read_hooks({"sendgrid": {"public_keys": [key]}})
    assert key not in str(caught.value)


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40), st.booleans())
def test_sendgrids_own_check_agrees(body: str, spoil: bool) -> None:
    sent = MAILER.signs(URL, body.encode())
    came = replace(sent, body=sent.body + b"x" * spoil)
    theirs = EventWebhook(MAILER.public_key).verify_signature(
        came.body.decode(), sent.header(SIGNATURE), sent.header(TIMESTAMP)
    )
    assert accepted(came) == theirs == (not spoil)
