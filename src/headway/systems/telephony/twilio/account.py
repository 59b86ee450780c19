"""An account at Twilio: places calls, sends messages, and reads what Twilio says of them."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar, cast

from twilio.rest import Client  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)
from twilio.twiml.messaging_response import MessagingResponse  # pyright: ignore[reportMissingTypeStubs]  (it has none)
from twilio.twiml.voice_response import Gather, VoiceResponse  # pyright: ignore[reportMissingTypeStubs]  (it has none)

from headway.core.errors import ProviderError, ProviderRefused, ProviderUnsure
from headway.runtime.timing import REAL, Timing
from headway.server.hooks.request import HookRequest
from headway.server.hooks.signals import event_id
from headway.server.hooks.twilio import check_twilio
from headway.systems.last_moment import Withdrawn
from headway.systems.telephony.texts import Inbound, TextEvent, TextOrder
from headway.systems.telephony.twilio.http_client import UNKNOWN, WireClient, read_refusal
from headway.systems.telephony.twilio.settings import TwilioSettings
from headway.systems.telephony.twilio.webhooks import (
    CALLS,
    NAME,
    read_inbound,
    read_pressed,
    read_status,
    read_text_status,
)
from headway.systems.telephony.voice import (
    SKEW_MS,
    Ask,
    CallEvent,
    CallOrder,
    CallStatus,
    Dialled,
    Fetch,
    NotFound,
    Pressed,
    Say,
    Sought,
    Spoken,
    the_one,
)
from headway.systems.telephony.wire import Wire

XML = "application/xml"


def written(script: Say | Ask) -> str:
    """Return a script as TwiML.

    A question is spoken twice, each time followed by the wait. Only the second silence is reported:
    after the first one the document goes on.
    """
    spoken: Any = VoiceResponse()
    if isinstance(script, Say):
        spoken.say(script.text)
    else:
        spoken.append(_gather(script, reports_silence=False))
        spoken.append(_gather(script, reports_silence=True))
    return str(spoken)


def answered(text: str | None) -> str:
    """Return the reply to an inbound message as TwiML; None for no reply."""
    answer: Any = MessagingResponse()
    if text is not None:
        answer.message(text)
    return str(answer)


def _gather(script: Ask, *, reports_silence: bool) -> object:
    gather: Any = Gather(
        input="dtmf",
        action=script.answer_url,
        method="POST",
        num_digits=script.digits,
        timeout=script.wait_s,
        action_on_empty_result=reports_silence,
    )
    gather.say(script.text)
    return gather


EVENTS = ["initiated", "ringing", "answered", "completed"]
MOST = 50
"""Calls that are looked at when one is sought."""

T = TypeVar("T")


class _Call(Protocol):
    """A call, as far as the official client's record of one is read here."""

    sid: str | None
    status: str | None
    duration: str | None
    start_time: object


class Account:
    """See `Voice` and `Texts`.

    Attributes:
        answers_ms: see `Voice` and `Texts`.
    """

    name = NAME

    def __init__(self, settings: TwilioSettings, *, timing: Timing = REAL) -> None:
        """Connect nothing yet."""
        self._tokens = settings.tokens
        self._wire = Wire(self.name, read_refusal, timeout_ms=settings.timeout, timing=timing)
        self.answers_ms = self._wire.answers_ms
        user, password = settings.user
        client = Client(
            user,
            password,
            settings.account_sid,
            edge=settings.edge,
            region=settings.region,
            http_client=WireClient(self._wire, settings.base_url),
            # What stands in TWILIO_… variables must not mix with the settings.
            environment={"": ""},
        )
        # Not at the first call or message: the client imports them then, and blocks the event loop.
        self._calls, self._messages = client.calls, client.messages

    async def dial(self, order: CallOrder) -> Dialled:
        """See `Voice.dial`."""
        script = order.script
        said: dict[str, Any] = (
            {"url": script.url} if isinstance(script, Fetch) else {"twiml": written(script)}
        )
        if order.limit_s is not None:
            said["time_limit"] = order.limit_s
        call = await _read(
            self._calls.create_async(
                to=order.to,
                from_=order.from_,
                status_callback=order.status_url,
                status_callback_event=EVENTS,
                status_callback_method="POST",
                timeout=order.ring_s,
                **said,
            )
        )
        return Dialled(self.name, _named(call.sid))

    async def look_up(self, sought: Sought) -> CallEvent | NotFound:
        """See `Voice.look_up`.

        Calls that wait at Twilio to be placed have no start time yet: they are asked for apart.

        Raises:
            ProviderUnsure: Twilio cannot be asked now, or one of several such calls still runs.
        """
        try:
            if sought.call_id is not None:
                call = await self._fetch(sought.call_id)
                return NotFound.UNCLEAR if call is None else self._event(call, sought)
            since = datetime.fromtimestamp((sought.since - SKEW_MS) // 1000, UTC)
            # In this order: one that starts in between is in the second list.
            listed = {
                one.sid: one
                for more in ({"status": "queued"}, {"start_time_after": since})
                for one in await self._list(sought, more)
            }
        except ProviderRefused as refused:
            message = f"twilio cannot be asked: {refused.message}"
            raise ProviderUnsure(message, hint=refused.hint) from refused
        found = [
            one
            for one in listed.values()
            if one.sid not in sought.others and not _before(one, since)
        ]
        return the_one([self._event(one, sought) for one in found])

    async def hang_up(self, call_id: str) -> None:
        """See `Voice.hang_up`.

        Raises:
            ProviderRefused: Twilio would not, and the call has not ended.
        """
        # Completing ends a call that is queued or rings too; cancelling would leave one alone that
        # was just answered.
        wanted = CallStatus.COMPLETED.value
        try:
            await _read(self._calls(call_id).update_async(status=wanted))
        except ProviderRefused:
            call = await self._fetch(call_id)
            if call is None or not _status(call).ended:
                raise

    async def send(self, order: TextOrder) -> str:
        """See `Texts.send`."""
        callback: dict[str, Any] = (
            {} if order.status_url is None else {"status_callback": order.status_url}
        )
        message = await _read(
            self._messages.create_async(to=order.to, from_=order.from_, body=order.text, **callback)
        )
        return _named(message.sid)

    def verify(self, request: HookRequest, now: int) -> None:
        """See `Voice.verify`."""
        del now  # the signature does not say when it was made
        check_twilio(request, auth_tokens=self._tokens)

    def read_status(self, request: HookRequest) -> CallEvent | None:
        """See `Voice.read_status`."""
        return read_status(request)

    def read_pressed(self, request: HookRequest) -> Pressed | None:
        """See `Voice.read_pressed`."""
        return read_pressed(request)

    def read_text_status(self, request: HookRequest) -> TextEvent | None:
        """See `Texts.read_text_status`."""
        return read_text_status(request)

    def read_inbound(self, request: HookRequest) -> Inbound | None:
        """See `Texts.read_inbound`."""
        return read_inbound(request)

    def speak(self, script: Say | Ask) -> Spoken:
        """See `Voice.speak`."""
        return Spoken(written(script).encode(), XML)

    def reply_text(self, text: str | None) -> tuple[bytes, str]:
        """See `Texts.reply_text`."""
        return answered(text).encode(), XML

    async def close(self) -> None:
        """See `Voice.close`."""
        await self._wire.close()

    async def _list(self, sought: Sought, more: dict[str, Any]) -> list[_Call]:
        found = await _read(
            self._calls.list_async(to=sought.to, from_=sought.from_, limit=MOST, **more)
        )
        return cast("list[_Call]", found)

    async def _fetch(self, call_id: str) -> _Call | None:
        try:
            return cast("_Call", await _read(self._calls(call_id).fetch_async()))
        except ProviderRefused as refused:
            if refused.provider_code == UNKNOWN:
                return None
            raise

    def _event(self, call: _Call, sought: Sought) -> CallEvent:
        call_id, status = _named(call.sid), _status(call)
        duration = call.duration or ""
        return CallEvent(
            provider=self.name,
            call_id=call_id,
            ref=sought.ref,
            status=status,
            event=event_id(self.name, call_id, status, "asked"),
            duration_s=int(duration) if status.ended and duration.isdecimal() else None,
        )


async def _read(asked: Awaitable[T]) -> T:
    """What the official client made of a reply.

    Raises:
        ProviderError: as the wire raised it.
        Withdrawn: the same.
        ProviderUnsure: there is one, but it is not understood; it may have been done.
    """
    try:
        return await asked
    except (ProviderError, Withdrawn):
        raise
    except Exception as error:  # (the client raises anything for a reply of another shape)
        message = f"twilio's reply is not understood: {type(error).__name__}"
        hint = "look it up; do not send it again"
        raise ProviderUnsure(message, hint=hint) from error


def _before(call: _Call, since: datetime) -> bool:
    # A call that still waits to be placed has not started.
    return isinstance(call.start_time, datetime) and call.start_time < since


def _named(sid: str | None) -> str:
    if not sid:
        message = "twilio's reply does not name the call or message"
        raise ProviderUnsure(message, hint="look it up; do not send it again")
    return sid


def _status(call: object) -> CallStatus:
    said = str(cast("_Call", call).status)
    status = CALLS.get(said)
    if status is None:
        message = f"twilio says that the call is {said[:40]!r}, which is not known"
        raise ProviderUnsure(message)
    return status
