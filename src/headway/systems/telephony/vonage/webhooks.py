"""What Vonage's webhooks say, once they are proved."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headway.core.errors import InvalidValue
from headway.server.hooks.request import HookRequest, is_object
from headway.server.hooks.said import MAX_REASON, event_id, fitting
from headway.systems.telephony.voice import CallEvent, Pressed
from headway.systems.telephony.vonage.statuses import CALLS, PASSED_OVER

NAME = "vonage"


def read_status(request: HookRequest) -> CallEvent | None:
    """See `Voice.read_status`.

    Raises:
        InvalidValue: it is not understood.
    """
    body = _object(request)
    said = body.get("status")
    if said is None or said in PASSED_OVER or "dtmf" in body:
        return None
    status = CALLS.get(str(said))
    if status is None:
        message = f"the call's status is {str(said)[:40]!r}"
        raise InvalidValue(message, hint=f"known: {', '.join(CALLS)}")
    call_id = _text(body, "uuid")
    return CallEvent(
        provider=NAME,
        call_id=call_id,
        ref=request.asked("ref"),
        status=status,
        event=event_id(NAME, call_id, str(said), str(body.get("timestamp", ""))),
        duration_s=whole(body.get("duration")) if status.ended else None,
        reason=_reason(body),
        body={name: _written(value) for name, value in body.items()},
    )


def read_pressed(request: HookRequest) -> Pressed | None:
    """See `Voice.read_pressed`.

    Raises:
        InvalidValue: it is not understood.
    """
    body = _object(request)
    keys = body.get("dtmf")
    if keys is None:
        return None
    said = keys.get("digits") if is_object(keys) else keys
    digits = "" if said is None else str(said)
    call_id = _text(body, "uuid")
    return Pressed(
        call_id=call_id,
        ref=request.asked("ref"),
        digits=digits,
        event=event_id(NAME, call_id, "pressed", digits),
    )


def whole(said: object) -> int | None:
    """A number of seconds, as Vonage writes it: digits, as text or not; None if it is none."""
    text = str(said)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _object(request: HookRequest) -> Mapping[str, object]:
    body = request.json()
    if not is_object(body):
        message = "the webhook is no object"
        raise InvalidValue(message)
    return body


def _text(body: Mapping[str, object], name: str) -> str:
    text = body.get(name)
    if not isinstance(text, str) or not text:
        message = f"the webhook has no {name}"
        raise InvalidValue(message)
    return text


def _reason(body: Mapping[str, object]) -> str:
    said = (body.get(name) for name in ("reason", "detail"))
    return fitting(", ".join(str(one) for one in said if one), MAX_REASON)


def _written(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
