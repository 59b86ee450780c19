"""Verify and read Vonage's webhooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

import jwt
import msgspec
from jwt.types import Options

from headway.core.errors import InvalidValue, PayloadTooLarge, Unauthenticated
from headway.server.hooks.request import HookRequest, any_same, check_fresh, is_object, refuse
from headway.server.hooks.signals import MAX_REASON, bounded_text, event_id
from headway.server.strict_json import read_json
from headway.systems.telephony.voice import (
    CallEvent,
    CallStatus,
    Pressed,
    read_status_word,
    whole_seconds,
)

CALLS: Mapping[str, CallStatus] = {
    "started": CallStatus.QUEUED,
    "ringing": CallStatus.RINGING,
    "answered": CallStatus.IN_PROGRESS,
    "human": CallStatus.IN_PROGRESS,
    "machine": CallStatus.IN_PROGRESS,
    "completed": CallStatus.COMPLETED,
    "busy": CallStatus.BUSY,
    "timeout": CallStatus.NO_ANSWER,
    "unanswered": CallStatus.NO_ANSWER,
    "failed": CallStatus.FAILED,
    "rejected": CallStatus.FAILED,
    "cancelled": CallStatus.CANCELED,
}

PASSED_OVER = frozenset({"disconnected", "input", "record", "transfer", "notify", "payment"})
"""Statuses of events within a call, which are ignored."""


TOLERANCE_MS = 300_000
ALGORITHM = "HS256"

_SCHEME = "bearer "
# Times are compared with the server's clock, which may differ from the machine's.
_OPTIONS: Options = {
    "require": ["iat", "payload_hash"],
    "verify_iat": False,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_aud": False,
}


def check_vonage(request: HookRequest, secret: str | None, now: int) -> None:
    """Verify that Vonage signed a webhook within the last five minutes.

    Args:
        secret: signature secret of the account.
        now: current time, ms UTC.

    Raises:
        Unauthenticated: there is no secret, or the signature is missing, made with another secret
            or for another body, or too old.
    """
    if secret is None:
        message = (
            "Vonage's webhooks cannot be verified: telephony.vonage.signature_secret is missing"
        )
        raise Unauthenticated(message, hint="copy the signature secret from Vonage's dashboard")
    header = request.needed("authorization")
    if header[: len(_SCHEME)].lower() != _SCHEME:
        refuse()
    try:
        claims = jwt.decode(
            header[len(_SCHEME) :].strip(), secret, algorithms=[ALGORITHM], options=_OPTIONS
        )
    except jwt.PyJWTError:
        refuse()
    check_fresh(str(claims["iat"]), now, TOLERANCE_MS)
    hashes = str(claims["payload_hash"]).encode("utf-8", "replace")
    if not any_same(_digests(request.body), hashes):
        refuse()


def _digests(body: bytes) -> list[bytes]:
    """Return the accepted digests: of the body as received, and as JSON without whitespace."""
    texts = [body]
    try:
        compact = json.dumps(read_json(body), separators=(",", ":"), ensure_ascii=False)
        texts.append(compact.encode())
    except (InvalidValue, PayloadTooLarge):
        pass
    return [sha256(text).hexdigest().encode() for text in texts]


NAME = "vonage"


def read_status(request: HookRequest) -> CallEvent | None:
    """See `Voice.read_status`.

    Raises:
        InvalidValue: it is not a JSON object, has no id, or its status is unknown.
    """
    body = _object(request)
    if body.get("status") is None or "dtmf" in body:
        return None
    word = str(body["status"])
    if word in PASSED_OVER:
        return None
    status = read_status_word("call", CALLS, word)
    call_id = _text(body, "uuid")
    return CallEvent(
        provider=NAME,
        call_id=call_id,
        ref=request.asked("ref"),
        status=status,
        event=event_id(NAME, call_id, word, str(body.get("timestamp", ""))),
        duration_s=whole_seconds(body.get("duration")) if status.ended else None,
        reason=_reason(body),
        body={name: _written(value) for name, value in body.items()},
    )


def read_pressed(request: HookRequest) -> Pressed | None:
    """See `Voice.read_pressed`.

    Raises:
        InvalidValue: it is not a JSON object, or has no id.
    """
    body = _object(request)
    keys = body.get("dtmf")
    if keys is None:
        return None
    pressed = keys.get("digits") if is_object(keys) else keys
    digits = "" if pressed is None else str(pressed)
    call_id = _text(body, "uuid")
    return Pressed(
        call_id=call_id,
        ref=request.asked("ref"),
        digits=digits,
        event=event_id(NAME, call_id, "pressed", digits),
    )


def _object(request: HookRequest) -> Mapping[str, object]:
    body = request.json()
    if not is_object(body):
        message = "the webhook is not a JSON object"
        raise InvalidValue(message)
    return body


def _text(body: Mapping[str, object], name: str) -> str:
    text = body.get(name)
    if not isinstance(text, str) or not text:
        message = f"the webhook has no {name}"
        raise InvalidValue(message)
    return text


def _reason(body: Mapping[str, object]) -> str:
    texts = (body.get(name) for name in ("reason", "detail"))
    return bounded_text(", ".join(str(one) for one in texts if one), MAX_REASON)


def _written(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
