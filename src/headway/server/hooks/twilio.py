"""Twilio: status callbacks of calls and messages, and their signature.

The signature covers the URL that Twilio calls, and the fields of the form in sorted order.

Source: Twilio, "Webhooks security", "Call status values", "Message status values"; its own
RequestValidator where these are silent.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from headway.contract.signals import Decided, Signal, SignalKind
from headway.core.errors import InvalidValue, Unauthenticated
from headway.server.hooks.request import HookRequest, any_same, only, read_form, refuse
from headway.server.hooks.signals import StatusMeaning, event_id

_NOTE = StatusMeaning(kind=SignalKind.NOTE)
_RETRY = StatusMeaning(decided=Decided.RETRY)
_DEAD = StatusMeaning(decided=Decided.DEAD)

CALLS: Mapping[str, StatusMeaning] = {
    "queued": _NOTE,
    "initiated": _NOTE,
    "ringing": _NOTE,
    "in-progress": StatusMeaning(kind=SignalKind.PROGRESS),
    "completed": StatusMeaning(),
    "busy": _RETRY,
    "no-answer": _RETRY,
    "failed": _DEAD,
    "canceled": _DEAD,
}
"""A busy line may be free later; a number that cannot be called stays that way."""

MESSAGES: Mapping[str, StatusMeaning] = {
    "accepted": _NOTE,
    "scheduled": _NOTE,
    "queued": _NOTE,
    "sending": _NOTE,
    "sent": _NOTE,
    "delivered": StatusMeaning(noted=True),
    "read": _NOTE,
    "undelivered": StatusMeaning(decided=Decided.DEAD, noted=True),
    "failed": StatusMeaning(decided=Decided.DEAD, noted=True),
    "canceled": StatusMeaning(decided=Decided.DEAD, noted=True),
}

SID = re.compile(r"[A-Z]{2}[0-9a-fA-F]{32}", re.ASCII)

Form = list[tuple[str, str]]


def status_signals(form: Form, key: str | None = None) -> list[Signal]:
    """Return the signals of a status callback.

    Args:
        key: key of the job; None for the id of the call or message.

    Returns:
        The signals; empty if the form is not a status callback or its id is not one of Twilio's.
        An unknown status becomes a note.

    Raises:
        InvalidValue: a field has several different values.
    """
    call = only(form, "CallStatus")
    table = MESSAGES if call is None else CALLS
    names = ("MessageStatus", "SmsStatus") if call is None else ("CallStatus",)
    ids = ("MessageSid", "SmsSid") if call is None else ("CallSid",)
    status, sid = _first_value(form, names), _first_value(form, ids)
    if status is None or sid is None or not SID.fullmatch(sid):
        # The fields are signed without separators, so an id of another shape may have absorbed
        # the next field's name.
        return []
    return table.get(status, _NOTE).signals(
        sid if key is None else key,
        event_id("twilio", sid, status, only(form, "SequenceNumber") or ""),
        status=status,
        body=dict(form),
        reason=", ".join([status, *failure_words(form)]),
    )


def is_status(form: Form) -> bool:
    """Return whether a form is a status callback of a call or a message."""
    names = {name for name, _ in form}
    return {"CallStatus", "CallSid"} <= names or {"MessageStatus", "MessageSid"} <= names


def _first_value(form: Form, names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := only(form, name))), None)


def failure_words(form: Form) -> list[str]:
    """Return the failure details of a status callback; empty if it has none."""
    details = {
        "error": only(form, "ErrorCode"),
        "": only(form, "ErrorMessage"),
        "SIP": only(form, "SipResponseCode"),
    }
    return [f"{name} {value}".strip() for name, value in details.items() if value]


SIGNATURE = "x-twilio-signature"
SETTINGS = "x-twilio-webhooks-signature-settings"
ALGORITHMS = {"HMAC_SHA1": "sha1", "HMAC_SHA256": "sha256"}

_PORTS = {"http": 80, "https": 443}


def check_twilio(
    request: HookRequest, *, auth_tokens: Sequence[str], shared_keys: Sequence[str] = ()
) -> None:
    """Verify Twilio's signature of a webhook.

    The signature has no timestamp, so a webhook can be replayed; a replay must have no effect.

    Raises:
        Unauthenticated: the webhook is not signed, or not with one of the keys.
    """
    signature = request.needed(SIGNATURE)
    algorithm, by_shared_key = _settings(request.header(SETTINGS) or "")
    keys = shared_keys if by_shared_key else auth_tokens
    tail = _signed_fields(request)
    expected = [
        b64encode(hmac.digest(key.encode(), (url + tail).encode("utf-8", "replace"), algorithm))
        for key in keys
        for url in both_ports(request.url)
    ]
    if not any_same(expected, signature.encode("utf-8", "surrogatepass")):
        refuse()


def both_ports(url: str) -> tuple[str, str]:
    """Return a URL without and with its port; which one is signed varies within Twilio."""
    scheme, _, rest = url.partition("://")
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    place, path = rest[:end], rest[end:]
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        host, port = place, str(_PORTS.get(scheme, 443))
    return f"{scheme}://{host}{path}", f"{scheme}://{host}:{port}{path}"


def _settings(header: str) -> tuple[str, bool]:
    values: dict[str, str] = {}
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        values[name] = value
    algorithm = values.get("algorithm") or "HMAC_SHA1"
    if algorithm.upper() not in ALGORITHMS:
        message = "the webhook is signed with an unknown algorithm"
        raise Unauthenticated(message, hint=f"known: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[algorithm.upper()], bool(values.get("key"))


def _signed_fields(request: HookRequest) -> str:
    try:
        if request.is_form:
            pairs = sorted(set(read_form(request.body)))
            return "".join(name + value for name, value in pairs)
        digest = request.asked("bodySHA256")
    except InvalidValue:
        refuse()
    # Any other body is signed through its hash, which is a parameter of the signed URL.
    if digest is None and not request.body:
        return ""
    real = sha256(request.body).hexdigest().encode()
    if digest is None or not any_same([real], digest.encode("utf-8", "replace")):
        refuse()
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Twilio:
    """Twilio's status callbacks.

    A job is found by `?ref=` in the URL of the status callback, or else by the id of the call or
    message, which the job passes as `known_as`.

    Attributes:
        auth_tokens: of the account; several while a token is replaced.
        shared_keys: for webhooks that are signed with a shared key.
    """

    auth_tokens: Sequence[str] = field(default=(), repr=False)
    shared_keys: Sequence[str] = field(default=(), repr=False)

    def verify(self, request: HookRequest, now: int) -> None:
        del now  # the signature has no timestamp
        check_twilio(request, auth_tokens=self.auth_tokens, shared_keys=self.shared_keys)

    def signals(self, request: HookRequest) -> Sequence[Signal]:
        if not request.is_form:
            return []
        return status_signals(read_form(request.body), request.asked("ref"))
