"""Read Twilio's verified webhooks; Twilio's statuses of calls and messages.

The simulated provider sends the same webhooks; its own name is then the `provider`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.errors import InvalidValue
from headway.server.hooks.request import HookRequest, only, read_form
from headway.server.hooks.signals import MAX_REASON, bounded_text, event_id
from headway.server.hooks.twilio import SID, Form, failure_words
from headway.systems.telephony.texts import Inbound, TextEvent, TextStatus
from headway.systems.telephony.voice import (
    CallEvent,
    CallStatus,
    Pressed,
    read_status_word,
    whole_seconds,
)

CALLS: Mapping[str, CallStatus] = {
    "queued": CallStatus.QUEUED,
    "initiated": CallStatus.QUEUED,
    "ringing": CallStatus.RINGING,
    "answered": CallStatus.IN_PROGRESS,
    "in-progress": CallStatus.IN_PROGRESS,
    "completed": CallStatus.COMPLETED,
    "busy": CallStatus.BUSY,
    "no-answer": CallStatus.NO_ANSWER,
    "failed": CallStatus.FAILED,
    "canceled": CallStatus.CANCELED,
}

MESSAGES: Mapping[str, TextStatus] = {
    "accepted": TextStatus.QUEUED,
    "scheduled": TextStatus.QUEUED,
    "queued": TextStatus.QUEUED,
    "sending": TextStatus.QUEUED,
    "sent": TextStatus.SENT,
    "delivered": TextStatus.DELIVERED,
    "read": TextStatus.DELIVERED,
    "undelivered": TextStatus.UNDELIVERED,
    "failed": TextStatus.FAILED,
    "canceled": TextStatus.FAILED,
}
"""Twilio's statuses of messages; "read" replaces "delivered"."""


NAME = "twilio"


def read_status(request: HookRequest, provider: str = NAME) -> CallEvent | None:
    """See `Voice.read_status`.

    Raises:
        InvalidValue: its status is unknown, or its id is not valid.
    """
    form = _form(request)
    word = only(form, "CallStatus")
    # A request with pressed keys contains the call's status, too.
    if word is None or only(form, "Digits") is not None:
        return None
    status = read_status_word("call", CALLS, word)
    call_id = _sid(form, "CallSid")
    return CallEvent(
        provider=provider,
        call_id=call_id,
        ref=request.asked("ref"),
        status=status,
        event=event_id(provider, call_id, word, only(form, "SequenceNumber") or ""),
        duration_s=whole_seconds(only(form, "CallDuration")) if status.ended else None,
        reason=_reason(form),
        body=dict(form),
    )


def read_pressed(request: HookRequest) -> Pressed | None:
    """See `Voice.read_pressed`.

    Raises:
        InvalidValue: its id is not valid.
    """
    form = _form(request)
    if only(form, "CallSid") is None or only(form, "CallbackSource") is not None:
        return None
    call_id = _sid(form, "CallSid")
    digits = only(form, "Digits") or ""
    return Pressed(
        call_id=call_id,
        ref=request.asked("ref"),
        digits=digits,
        event=event_id(NAME, call_id, "pressed", digits),
    )


def read_text_status(request: HookRequest, provider: str = NAME) -> TextEvent | None:
    """See `TextProvider.read_text_status`.

    Raises:
        InvalidValue: its status is unknown, or its id is not valid.
    """
    form = _form(request)
    word = only(form, "MessageStatus")
    if word is None:
        return None
    status = read_status_word("message", MESSAGES, word)
    message_id = _sid(form, "MessageSid")
    return TextEvent(
        provider=provider,
        message_id=message_id,
        ref=request.asked("ref"),
        status=status,
        event=event_id(provider, message_id, word),
        to=only(form, "To") or "",
        reason=_reason(form),
        code=only(form, "ErrorCode") or "",
    )


def read_inbound(request: HookRequest, provider: str = NAME) -> Inbound | None:
    """See `TextProvider.read_inbound`.

    Raises:
        InvalidValue: its id is not valid.
    """
    form = _form(request)
    text, from_, to = only(form, "Body"), only(form, "From"), only(form, "To")
    if text is None or from_ is None or only(form, "MessageStatus") is not None:
        return None
    event = event_id(provider, _sid(form, "MessageSid"), "received")
    # Only of accounts with Advanced Opt-Out, whose keywords are configurable.
    keyword = only(form, "OptOutType")
    return Inbound(from_=from_, to=to or "", text=text, event=event, keyword=keyword or None)


def _form(request: HookRequest) -> Form:
    return read_form(request.body) if request.is_form else []


def _sid(form: Form, name: str) -> str:
    """Return a Twilio id from a form.

    The signature covers the fields concatenated without separators, so an id of another format may
    contain the next field's name.

    Raises:
        InvalidValue: the id is missing or not valid.
    """
    sid = only(form, name)
    if sid is None or SID.fullmatch(sid) is None:
        message = f"{name} is not a valid Twilio id"
        raise InvalidValue(message)
    return sid


def _reason(form: Form) -> str:
    return bounded_text(", ".join(failure_words(form)), MAX_REASON)
