"""What Twilio's status callbacks say of calls and messages.

Source: Twilio, "Call status values", "Message status values".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headway.contract.signals import Decided, Signal, SignalKind
from headway.server.hooks.request import only
from headway.server.hooks.said import Says, event_id

_NOTE = Says(kind=SignalKind.NOTE)
_RETRY = Says(decided=Decided.RETRY)
_DEAD = Says(decided=Decided.DEAD)

CALLS: Mapping[str, Says] = {
    "queued": _NOTE,
    "initiated": _NOTE,
    "ringing": _NOTE,
    "in-progress": Says(kind=SignalKind.PROGRESS),
    "completed": Says(),
    "busy": _RETRY,
    "no-answer": _RETRY,
    "failed": _DEAD,
    "canceled": _DEAD,
}
"""A busy line may be free later; a number that cannot be called stays one."""

MESSAGES: Mapping[str, Says] = {
    "accepted": _NOTE,
    "scheduled": _NOTE,
    "queued": _NOTE,
    "sending": _NOTE,
    "sent": _NOTE,
    "delivered": Says(noted=True),
    "read": _NOTE,
    "undelivered": Says(decided=Decided.DEAD, noted=True),
    "failed": Says(decided=Decided.DEAD, noted=True),
    "canceled": Says(decided=Decided.DEAD, noted=True),
}

_SID = re.compile(r"[A-Z]{2}[0-9a-fA-F]{32}", re.ASCII)

Form = list[tuple[str, str]]


def status_signals(form: Form, key: str | None = None) -> list[Signal]:
    """What a status callback says.

    Args:
        form: its fields.
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
    if status is None or sid is None or not _SID.fullmatch(sid):
        # The fields are signed one behind the other without a mark between them: an id of another
        # shape may have swallowed the next field's name.
        return []
    return table.get(status, _NOTE).signals(
        sid if key is None else key,
        event_id("twilio", sid, status, only(form, "SequenceNumber") or ""),
        status=status,
        body=dict(form),
        reason=_reason(form, status),
    )


def is_status(form: Form) -> bool:
    """Whether a form is a status callback of a call or a message."""
    names = {name for name, _ in form}
    return {"CallStatus", "CallSid"} <= names or {"MessageStatus", "MessageSid"} <= names


def _first(form: Form, names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := only(form, name))), None)


def _reason(form: Form, status: str) -> str:
    said = {
        "error": only(form, "ErrorCode"),
        "": only(form, "ErrorMessage"),
        "SIP": only(form, "SipResponseCode"),
    }
    more = [f"{name} {value}".strip() for name, value in said.items() if value]
    return ", ".join([status, *more])
