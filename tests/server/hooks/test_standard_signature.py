"""Standard Webhooks' signatures, compared with the reference implementation."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from headway.core.errors import InvalidValue, Unauthenticated
from headway.runtime.timing import REAL
from headway.server.hooks.providers import read_hooks
from tests.server.hooks import byte_flips
from tests.server.hooks.senders import NOW, SECRET, PublicSigner, Sent, from_standard

URL = "https://hw.example.org/hooks/payments"
SAID = {"type": "headway.signal", "data": {"key": "k", "final": "succeeded", "body": "ü 你好"}}
OTHER = "whsec_" + b64encode(bytes(range(32, 64))).decode()
SIGNER = PublicSigner()
NAMES = ("webhook-id", "webhook-timestamp", "webhook-signature")


def accepted(sent: Sent, *keys: str, now: int = NOW) -> bool:
    provider = read_hooks({"standard": {"payments": {"keys": list(keys or (SECRET,))}}})["payments"]
    try:
        provider.verify(sent.came(), now)
    except Unauthenticated:
        return False
    return True


def test_vector_of_the_reference_implementation_is_accepted() -> None:
    sent = Sent(
        url=URL,
        headers=(
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ),
        body=b'{"test": 2432232314}',
    )
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105  (of the published example)
    assert accepted(sent, secret, now=1_614_265_330_000)
    assert not accepted(sent, secret)


def test_flipping_any_byte_of_body_or_headers_refuses() -> None:
    for sent, key in (
        (from_standard(URL, SAID), SECRET),
        (SIGNER.sends(URL, SAID), SIGNER.public_key),
    ):
        assert accepted(sent, key)
        changed = [
            *byte_flips.bodies(sent),
            *(one for name in NAMES for one in byte_flips.headers(sent, name)),
        ]
        assert [one for one in changed if accepted(one, key)] == []


@pytest.mark.parametrize("name", NAMES)
def test_header_missing_empty_or_sent_twice_refuses(name: str) -> None:
    sent = from_standard(URL, SAID)
    assert not accepted(sent.with_header(name, None))
    assert not accepted(sent.with_header(name, ""))
    assert not accepted(sent.twice(name))


def test_one_of_several_signatures_is_enough_and_unknown_versions_are_ignored() -> None:
    good = from_standard(URL, SAID)
    old = from_standard(URL, SAID, secret=OTHER).header("webhook-signature")
    several = f"v9,AAAA {old} {good.header('webhook-signature')}"
    assert accepted(good.with_header("webhook-signature", several))
    assert not accepted(good.with_header("webhook-signature", f"v9,AAAA {old}"))
    assert not accepted(good.with_header("webhook-signature", "v1"))
    for n, is_accepted in ((15, True), (16, False)):
        many = " ".join([old] * n + [good.header("webhook-signature")])
        assert accepted(good.with_header("webhook-signature", many)) is is_accepted


def test_any_of_several_keys_is_accepted_whichever_their_type() -> None:
    keys = (OTHER, SIGNER.public_key, SECRET)
    assert accepted(from_standard(URL, SAID), *keys)
    assert accepted(SIGNER.sends(URL, SAID), *keys)
    assert not accepted(from_standard(URL, SAID), OTHER, SIGNER.public_key)
    assert not accepted(PublicSigner().sends(URL, SAID), *keys)


def test_signature_of_one_type_is_not_taken_for_the_other() -> None:
    hashed = from_standard(URL, SAID).header("webhook-signature")
    signed = SIGNER.sends(URL, SAID).header("webhook-signature")
    sent = from_standard(URL, SAID)
    as_public = sent.with_header("webhook-signature", hashed.replace("v1,", "v1a,"))
    as_secret = sent.with_header("webhook-signature", signed.replace("v1a,", "v1,"))
    assert not accepted(as_public, SECRET, SIGNER.public_key)
    assert not accepted(as_secret, SECRET, SIGNER.public_key)


def test_another_text_for_the_same_signature_bytes_refuses() -> None:
    sent = SIGNER.sends(URL, SAID)
    text = sent.header("webhook-signature")
    alike = [text[:-3] + chr(ord(text[-3]) + 1) + "==", text + "\n", f"v1a,\n{text[4:]}"]
    assert b64decode(alike[0][4:]) == b64decode(text[4:])
    for one in alike:
        assert not accepted(sent.with_header("webhook-signature", one), SIGNER.public_key)


def test_times_within_the_tolerance_are_accepted_and_others_refuse() -> None:
    sent = from_standard(URL, SAID)
    assert accepted(sent, now=NOW + 300_000)
    assert accepted(sent, now=NOW - 300_000)
    assert not accepted(sent, now=NOW + 301_000)
    assert not accepted(sent, now=NOW - 301_000)
    table = {"keys": SECRET, "tolerance": "10s"}
    strict = read_hooks({"standard": {"payments": table}})["payments"]
    strict.verify(sent.came(), NOW + 10_000)
    with pytest.raises(Unauthenticated):
        strict.verify(sent.came(), NOW + 11_000)


def test_id_has_at_most_256_characters() -> None:
    assert accepted(from_standard(URL, SAID, own="m" * 256))
    assert not accepted(from_standard(URL, SAID, own="m" * 257))


def test_id_time_and_body_cannot_be_split_differently() -> None:
    sent = from_standard(URL, SAID)
    at = sent.header("webhook-timestamp")
    moved = sent.with_header("webhook-id", f"msg_1.{at}").with_header("webhook-timestamp", "1")
    assert not accepted(moved)
    longer = sent.with_header("webhook-timestamp", f"{at}.{sent.body[:1].decode()}")
    assert not accepted(replace(longer, body=sent.body[1:]))


@pytest.mark.parametrize("key", ["whsec_short", "whsec_" + "!" * 44, "whpk_AAAAAAAA"])
def test_unusable_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(InvalidValue, match=r"hooks\.standard\.payments") as caught:
        read_hooks({"standard": {"payments": {"keys": [key]}}})
    assert key not in str(caught.value)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4), st.booleans())
def test_reference_implementation_agrees(said: dict[str, str], spoil: bool) -> None:
    now = REAL.wall_at()
    body = json.dumps(said)
    signature = Webhook(SECRET).sign("m", datetime.fromtimestamp(now // 1000, tz=UTC), body)
    headers = {
        "webhook-id": "m",
        "webhook-timestamp": str(now // 1000),
        "webhook-signature": signature,
    }
    came = body + " " * spoil
    try:
        Webhook(SECRET).verify(came, headers, json_parse=False)
        theirs = True
    except Exception:  # noqa: BLE001  (whatever it raises is its no)
        theirs = False
    sent = Sent(url=URL, headers=tuple(headers.items()), body=came.encode())
    assert accepted(sent, now=now) == theirs == (not spoil)
