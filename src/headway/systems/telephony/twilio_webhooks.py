"""Read Twilio's verified webhooks, and answer them in TwiML; its statuses of calls and messages.

The simulated provider sends the same webhooks; its own name is then the `provider`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twilio.twiml.messaging_response import MessagingResponse  # pyright: ignore[reportMissingTypeStubs]  (untyped)
from twilio.twiml.voice_response import Gather, VoiceResponse  # pyright: ignore[reportMissingTypeStubs]  (untyped)

from headway.core.errors import InvalidValue
from headway.server.hooks.request import HookRequest, only, read_form
from headway.server.hooks.signals import MAX_REASON, bounded_text, event_id
from headway.server.hooks.twilio import SID, Form, failure_words
from headway.systems.telephony.texts import Inbound, TextEvent, TextStatus, plain_text
from headway.systems.telephony.voice import (
    Ask,
    CallEvent,
    CallStatus,
    Pressed,
    Say,
    Spoken,
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


_XML = "application/xml"


def to_twiml(script: Say | Ask) -> str:
    """Return a script as TwiML.

    A question is spoken twice, each time followed by a wait. Only the second silence is reported:
    after the first the document continues.
    """
    spoken: Any = VoiceResponse()
    if isinstance(script, Say):
        spoken.say(plain_text(script.text))
    else:
        spoken.append(_gather(script, reports_silence=False))
        spoken.append(_gather(script, reports_silence=True))
    return str(spoken)


def reply_twiml(text: str | None) -> str:
    """Return the reply to an inbound message as TwiML; None for no reply."""
    answer: Any = MessagingResponse()
    if text is not None:
        answer.message(plain_text(text))
    return str(answer)


def speak(script: Say | Ask) -> Spoken:
    """See `Voice.speak`."""
    return Spoken(to_twiml(script).encode(), _XML)


def reply_text(text: str | None) -> tuple[bytes, str]:
    """See `TextProvider.reply_text`."""
    return reply_twiml(text).encode(), _XML


def _gather(script: Ask, *, reports_silence: bool) -> object:
    gather: Any = Gather(
        input="dtmf",
        action=script.answer_url,
        method="POST",
        num_digits=script.digits,
        timeout=script.wait_s,
        action_on_empty_result=reports_silence,
    )
    gather.say(plain_text(script.text))
    return gather
