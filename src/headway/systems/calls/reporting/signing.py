"""Signing what is reported, as Standard Webhooks asks.

Source: the Standard Webhooks specification, "Webhook payload", "Signature scheme" and "Verifying
signatures".
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256

from headway.core.errors import InvalidValue
from headway.server.hooks.settings import SHORTEST_SECRET
from headway.server.hooks.signatures import strict_base64

PREFIX = "whsec_"
WHERE = "calls.reporting_keys"


def read_keys(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Reads keys.

    Args:
        texts: each `whsec_` and base64 of 24 bytes or more.

    Returns:
        The secrets, in this order.

    Raises:
        InvalidValue: one is unusable; it is never told.
    """
    keys: list[bytes] = []
    for number, text in enumerate(texts, start=1):
        key = strict_base64(text.removeprefix(PREFIX))
        if key is None or len(key) < SHORTEST_SECRET:
            message = f"{WHERE}: key {number} is no secret of {SHORTEST_SECRET} bytes in base64"
            raise InvalidValue(message, hint="whsec_ and the output of: openssl rand -base64 32")
        keys.append(key)
    return tuple(keys)


def sign(keys: Sequence[bytes], event: str, at_s: int, body: bytes) -> Mapping[str, str]:
    """The headers of a webhook.

    Args:
        keys: each signs, so that a receiver may change to a new one at any moment.
        event: the same however often it is sent.
        at_s: when it is sent, in seconds UTC.
        body: as it is sent.
    """
    signed = f"{event}.{at_s}.".encode() + body
    signatures = (b64encode(hmac.digest(key, signed, sha256)).decode() for key in keys)
    return {
        "webhook-id": event,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }
