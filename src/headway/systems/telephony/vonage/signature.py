"""Vonage's signature: a JWT that holds the digest of the body.

Source: Vonage, "Webhooks: decoding signed webhooks".
"""

from __future__ import annotations

import json
from hashlib import sha256

import jwt
from jwt.types import Options

from headway.core.errors import InvalidValue, PayloadTooLarge, Unauthenticated
from headway.server.hooks.request import HookRequest
from headway.server.hooks.signatures import any_same, check_fresh, refuse
from headway.server.strict_json import read_json

TOLERANCE_MS = 300_000
ALGORITHM = "HS256"

_SCHEME = "bearer "
# Moments are compared with the server's own clock, which need not be the machine's.
_OPTIONS: Options = {
    "require": ["iat", "payload_hash"],
    "verify_iat": False,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_aud": False,
}


def check_vonage(request: HookRequest, secret: str | None, now: int) -> None:
    """Lets a webhook pass that Vonage has signed within the last five minutes.

    Args:
        request: as it came.
        secret: of the account; None if there is none.
        now: the moment, ms UTC.

    Raises:
        Unauthenticated: it is not signed, not with this secret, over another body, or too long ago.
    """
    if secret is None:
        message = (
            "webhooks of Vonage cannot be proved: telephony.vonage.signature_secret is missing"
        )
        raise Unauthenticated(message, hint="copy the signature secret from Vonage's dashboard")
    said = request.needed("authorization")
    if said[: len(_SCHEME)].lower() != _SCHEME:
        refuse()
    try:
        claims = jwt.decode(
            said[len(_SCHEME) :].strip(), secret, algorithms=[ALGORITHM], options=_OPTIONS
        )
    except jwt.PyJWTError:
        refuse()
    check_fresh(str(claims["iat"]), now, TOLERANCE_MS)
    told = str(claims["payload_hash"]).encode("utf-8", "replace")
    if not any_same(_digests(request.body), told):
        refuse()


def _digests(body: bytes) -> list[bytes]:
    """The digests that the body can have: as it came, and as JSON without blanks."""
    texts = [body]
    try:
        compact = json.dumps(read_json(body), separators=(",", ":"), ensure_ascii=False)
        texts.append(compact.encode())
    except (InvalidValue, PayloadTooLarge):
        pass
    return [sha256(text).hexdigest().encode() for text in texts]
