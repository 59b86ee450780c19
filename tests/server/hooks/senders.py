"""Webhook senders, each signing with its provider's own package if that package can sign."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from standardwebhooks import Webhook
from twilio.request_validator import RequestValidator

from headway.server.hooks.request import FORM, HookRequest

NOW = 1_795_000_000_000
TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105  (made up)
SECRET = "whsec_" + b64encode(bytes(range(32))).decode()
CALL = "CA" + "0123456789abcdef" * 2
MESSAGE = "SM" + "fedcba9876543210" * 2


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A webhook as it is sent."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""

    def came(self) -> HookRequest:
        """Return the webhook as the server sees it."""
        headers = tuple((name.lower(), value) for name, value in self.headers)
        return HookRequest(method="POST", url=self.url, headers=headers, body=self.body)

    def with_header(self, name: str, value: str | None) -> Sent:
        """Return the webhook with another value of a header, or without it."""
        kept = tuple(one for one in self.headers if one[0].lower() != name.lower())
        return replace(self, headers=kept if value is None else (*kept, (name, value)))

    def twice(self, name: str) -> Sent:
        """Return the webhook with a header repeated."""
        again = tuple(one for one in self.headers if one[0].lower() == name.lower())
        return replace(self, headers=self.headers + again)

    def header(self, name: str) -> str:
        """Return the value of a header."""
        return next(value for one, value in self.headers if one.lower() == name.lower())


def from_twilio(
    url: str,
    fields: dict[str, str] | list[tuple[str, str]],
    *,
    token: str = TOKEN,
    signed_url: str | None = None,
) -> Sent:
    """Return a form post from Twilio."""
    signature = RequestValidator(token).compute_signature(signed_url or url, dict(fields))
    return Sent(
        url=url,
        headers=(("Content-Type", FORM), ("X-Twilio-Signature", signature)),
        body=urlencode(fields).encode(),
    )


def json_from_twilio(url: str, said: Any, *, token: str = TOKEN) -> Sent:
    """Return a JSON post from Twilio, signed by the body's hash in the URL."""
    body = json.dumps(said).encode()
    whole = f"{url}?bodySHA256={sha256(body).hexdigest()}"
    signature = RequestValidator(token).compute_signature(whole, {})
    return Sent(
        url=whole,
        headers=(("Content-Type", "application/json"), ("X-Twilio-Signature", signature)),
        body=body,
    )


def call_status(status: str, sequence: int, sid: str = CALL, **more: str) -> dict[str, str]:
    """Return the fields of a Twilio call status."""
    return {"CallSid": sid, "CallStatus": status, "SequenceNumber": str(sequence), **more}


@dataclass(frozen=True)
class Mailer:
    """SendGrid, with its own key."""

    key: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP256R1()))

    @property
    def public_key(self) -> str:
        """Return the key as SendGrid displays it."""
        return public_text(self.key)

    def sends(self, url: str, events: Any, *, now: int = NOW) -> Sent:
        """Return a signed webhook with events."""
        return self.signs(url, json.dumps(events, ensure_ascii=False).encode(), now=now)

    def signs(self, url: str, body: bytes, *, now: int = NOW) -> Sent:
        """Return a signed webhook with a body."""
        timestamp = str(now // 1000)
        signature = self.key.sign(timestamp.encode() + body, ECDSA(SHA256()))
        return Sent(
            url=url,
            headers=(
                ("Content-Type", "application/json"),
                ("X-Twilio-Email-Event-Webhook-Signature", b64encode(signature).decode()),
                ("X-Twilio-Email-Event-Webhook-Timestamp", timestamp),
            ),
            body=body,
        )


def public_text(key: EllipticCurvePrivateKey) -> str:
    """Return a public key in base64."""
    data = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return b64encode(data).decode()


def from_standard(
    url: str, said: Any, *, own: str = "msg_1", secret: str = SECRET, now: int = NOW
) -> Sent:
    """Return a Standard Webhook signed with HMAC."""
    body = json.dumps(said, ensure_ascii=False)
    at = datetime.fromtimestamp(now // 1000, tz=UTC)
    return Sent(
        url=url,
        headers=(
            ("Content-Type", "application/json"),
            ("webhook-id", own),
            ("webhook-timestamp", str(now // 1000)),
            ("webhook-signature", Webhook(secret).sign(own, at, body)),
        ),
        body=body.encode(),
    )


@dataclass(frozen=True)
class PublicSigner:
    """A sender of Standard Webhooks that signs with ed25519."""

    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def public_key(self) -> str:
        """Return the key in the specification's format."""
        data = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return "whpk_" + b64encode(data).decode()

    def sends(self, url: str, said: Any, *, own: str = "msg_1", now: int = NOW) -> Sent:
        """Return a signed webhook."""
        body = json.dumps(said).encode()
        signature = self.key.sign(f"{own}.{now // 1000}.".encode() + body)
        return Sent(
            url=url,
            headers=(
                ("Content-Type", "application/json"),
                ("webhook-id", own),
                ("webhook-timestamp", str(now // 1000)),
                ("webhook-signature", "v1a," + b64encode(signature).decode()),
            ),
            body=body,
        )
