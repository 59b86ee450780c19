"""Standard Webhooks: signed with a shared secret or a provider's key pair.

Source: the Standard Webhooks specification, "Signature scheme" and "Verifying signatures".
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from headway.contract.signals import Signal
from headway.core.errors import InvalidValue
from headway.server.hooks.request import (
    TOLERANCE_MS,
    HookRequest,
    any_same,
    check_fresh,
    is_object,
    is_signed,
    refuse,
    strict_base64,
)
from headway.server.hooks.signals import event_id, signal_of

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"
TYPE = "headway.signal"

_MOST_SIGNATURES = 16
_MOST_ID = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class StandardWebhooks:
    """A sender of Standard Webhooks.

    Attributes:
        name: prefix of the event ids, so that those of several senders differ.
        secrets: for `v1`, HMAC-SHA256.
        public_keys: for `v1a`, ed25519.
        tolerance_ms: maximum difference between a timestamp and now.
    """

    name: str
    secrets: Sequence[bytes] = field(default=(), repr=False)
    public_keys: Sequence[Ed25519PublicKey] = ()
    tolerance_ms: int = TOLERANCE_MS

    def verify(self, request: HookRequest, now: int) -> None:
        own, timestamp = request.needed(ID), request.needed(TIMESTAMP)
        signatures = request.needed(SIGNATURE).split(" ")
        if len(own) > _MOST_ID or len(signatures) > _MOST_SIGNATURES:
            refuse()
        signed = f"{own}.{timestamp}.".encode("utf-8", "replace") + request.body
        # Check all of them, so that the time does not depend on which one matches.
        if True not in [self._fits(one, signed) for one in signatures]:
            refuse()
        check_fresh(timestamp, now, self.tolerance_ms)

    def signals(self, request: HookRequest) -> Sequence[Signal]:
        """See `WebhookProvider.signals`.

        Raises:
            InvalidValue: the type is `headway.signal`, but the data is not a valid signal.
        """
        body = request.json()
        if not is_object(body) or body.get("type") != TYPE:
            return []
        data = body.get("data")
        if not is_object(data):
            message = f"the data of a {TYPE} is not an object"
            raise InvalidValue(message, hint='send {"key": "…", "final": "succeeded"}')
        key = data.get("key")
        if not isinstance(key, str):
            message = f"the data of a {TYPE} has no key"
            raise InvalidValue(message, hint="use a job's reference, or another key of its run")
        own = {"event": event_id(self.name, request.needed(ID))}
        fields = {name: value for name, value in data.items() if name != "key"}
        return [signal_of(key, own | fields)]

    def _fits(self, signature: str, signed: bytes) -> bool:
        version, _, text = signature.partition(",")
        if version == "v1":
            expected = [b64encode(hmac.digest(one, signed, sha256)) for one in self.secrets]
            return any_same(expected, text.encode("utf-8", "surrogatepass"))
        if version == "v1a":
            data = strict_base64(text)
            return data is not None and any(
                is_signed(key.verify, data, signed) for key in self.public_keys
            )
        return False
