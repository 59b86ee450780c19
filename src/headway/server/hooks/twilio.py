"""Twilio: status callbacks of calls and messages, and their signature.

The signature covers the URL as Twilio calls it, and the form's fields in order.

Source: Twilio, "Webhooks security", "Call status values", "Message status values"; its own
RequestValidator decides where the text is silent.
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
"""A busy line may be free later; a number that cannot be called stays one."""

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
    """Return what a status callback says.

    Args:
        key: of the job; None for the call's or message's own id.

    Returns:
        The signals; none for a webhook of another sort. A status that is not known is noted.

    Raises:
        InvalidValue: a field has several values, or the id is none of Twilio's.
    """
    call = only(form, "CallStatus")
    table = MESSAGES if call is None else CALLS
    names = ("MessageStatus", "SmsStatus") if call is None else ("CallStatus",)
    ids = ("MessageSid", "SmsSid") if call is None else ("CallSid",)
    status, sid = _first(form, names), _first(form, ids)
    if status is None or sid is None or not SID.fullmatch(sid):
        # The fields are signed one behind the other without a mark between them: an id of another
        # shape may have swallowed the next field's name.
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


def _first(form: Form, names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := only(form, name))), None)


def failure_words(form: Form) -> list[str]:
    """Return what a status callback says of why something failed; nothing if it does not."""
    said = {
        "error": only(form, "ErrorCode"),
        "": only(form, "ErrorMessage"),
        "SIP": only(form, "SipResponseCode"),
    }
    return [f"{name} {value}".strip() for name, value in said.items() if value]


SIGNATURE = "x-twilio-signature"
SETTINGS = "x-twilio-webhooks-signature-settings"
ALGORITHMS = {"HMAC_SHA1": "sha1", "HMAC_SHA256": "sha256"}

_PORTS = {"http": 80, "https": 443}


def check_twilio(
    request: HookRequest, *, auth_tokens: Sequence[str], shared_keys: Sequence[str] = ()
) -> None:
    """Verify Twilio's signature of a webhook.

    Nothing in it says when it was signed: it can be replayed, and must have no effect then.

    Raises:
        Unauthenticated: it is not signed, or not with one of these.
    """
    said = request.needed(SIGNATURE)
    algorithm, by_shared_key = _settings(request.header(SETTINGS) or "")
    keys = shared_keys if by_shared_key else auth_tokens
    tail = _signed_fields(request)
    expected = [
        b64encode(hmac.digest(key.encode(), (url + tail).encode("utf-8", "replace"), algorithm))
        for key in keys
        for url in both_ports(request.url)
    ]
    if not any_same(expected, said.encode("utf-8", "surrogatepass")):
        refuse()


def both_ports(url: str) -> tuple[str, str]:
    """Return a URL with its port and without; which one Twilio signs depends on who of it calls."""
    scheme, _, rest = url.partition("://")
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    place, path = rest[:end], rest[end:]
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        host, port = place, str(_PORTS.get(scheme, 443))
    return f"{scheme}://{host}{path}", f"{scheme}://{host}:{port}{path}"


def _settings(header: str) -> tuple[str, bool]:
    said: dict[str, str] = {}
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        said[name] = value
    algorithm = said.get("algorithm") or "HMAC_SHA1"
    if algorithm.upper() not in ALGORITHMS:
        message = "the webhook is signed with an unknown algorithm"
        raise Unauthenticated(message, hint=f"known: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[algorithm.upper()], bool(said.get("key"))


def _signed_fields(request: HookRequest) -> str:
    try:
        if request.is_form:
            pairs = sorted(set(read_form(request.body)))
            return "".join(name + value for name, value in pairs)
        digest = request.asked("bodySHA256")
    except InvalidValue:
        refuse()
    # A body that is no form is signed by its hash, which stands in the signed URL.
    if digest is None and not request.body:
        return ""
    real = sha256(request.body).hexdigest().encode()
    if digest is None or not any_same([real], digest.encode("utf-8", "replace")):
        refuse()
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Twilio:
    """Twilio, by an account's tokens.

    A job is found by `?ref=` of the URL that was given as status callback, else by the id of the
    call or message, which the job says with `known_as`.

    Attributes:
        auth_tokens: of the account; several while one replaces another.
        shared_keys: for webhooks that are signed with one.
    """

    auth_tokens: Sequence[str] = field(default=(), repr=False)
    shared_keys: Sequence[str] = field(default=(), repr=False)

    def verify(self, request: HookRequest, now: int) -> None:
        """See `Provider.verify`."""
        del now  # the signature does not say when it was made
        check_twilio(request, auth_tokens=self.auth_tokens, shared_keys=self.shared_keys)

    def signals(self, request: HookRequest) -> Sequence[Signal]:
        """See `Provider.signals`."""
        if not request.is_form:
            return []
        return status_signals(read_form(request.body), request.asked("ref"))
