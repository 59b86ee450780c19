"""Twilio: calls and messages, by its official client; and what a refusal concerns.

Source: Twilio, "Error and Warning Dictionary".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol, Self, cast

import httpx
import msgspec
from pydantic import Field, model_validator
from twilio.http import AsyncHttpClient  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)
from twilio.http.response import Response  # pyright: ignore[reportMissingTypeStubs]  (as above)
from twilio.rest import Client  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)
from twilio.twiml.messaging_response import MessagingResponse  # pyright: ignore[reportMissingTypeStubs]  (it has none)
from twilio.twiml.voice_response import Gather, VoiceResponse  # pyright: ignore[reportMissingTypeStubs]  (it has none)

from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.runtime.settings_table import BaseUrl, Span, Table, read_table
from headway.runtime.timing import REAL, Timing
from headway.server.hooks.providers import Keys
from headway.server.hooks.request import HookRequest
from headway.server.hooks.signals import event_id
from headway.server.hooks.twilio import check_twilio
from headway.systems.telephony.texts import TextOrder
from headway.systems.telephony.twilio_webhooks import (
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
    Say,
    Sought,
    Spoken,
    known_status,
    the_one,
)
from headway.systems.telephony.wire import LOOK_IT_UP, Refusal, Wire, understood

BASE_URL = "https://api.twilio.com"


class TwilioSettings(Table):
    """`[telephony.twilio]`.

    Attributes:
        account_sid: of the account, `AC…`.
        auth_token: of the account.
        auth_tokens: several, while one replaces another: the first sends, all verify.
        api_key: `SK…`, to send with instead of the account's token.
        api_secret: of the key.
        base_url: where the API is.
        timeout: until when a whole reply must be there, ms.
        edge: where requests enter Twilio's network.
        region: where they are handled.
    """

    account_sid: Annotated[str, Field(pattern=r"^AC[0-9a-fA-F]{32}$")]
    auth_token: Annotated[str | None, Field(min_length=8, repr=False)] = None
    auth_tokens: Keys = ()
    api_key: Annotated[str | None, Field(pattern=r"^SK[0-9a-fA-F]{32}$")] = None
    api_secret: Annotated[str | None, Field(min_length=8, repr=False)] = None
    base_url: BaseUrl = BASE_URL
    timeout: Annotated[Span, Field(ge=100, le=120_000)] = 10_000
    edge: Annotated[str | None, Field(pattern=r"^[a-z0-9-]+$")] = None
    region: Annotated[str | None, Field(pattern=r"^[a-z0-9-]+$")] = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.auth_token is None) == (not self.auth_tokens):
            message = "give auth_token, or auth_tokens: webhooks are checked with them"
            raise ValueError(message)
        if (self.api_key is None) != (self.api_secret is None):
            message = "give api_key and api_secret together, or neither"
            raise ValueError(message)
        if self.base_url != BASE_URL and (self.edge or self.region):
            message = "give base_url, or edge and region, which are parts of twilio's own address"
            raise ValueError(message)
        return self

    @property
    def tokens(self) -> tuple[str, ...]:
        """All of the account's tokens; the first one sends."""
        return self.auth_tokens if self.auth_token is None else (self.auth_token,)

    @property
    def user(self) -> tuple[str, str]:
        """Name and password to send with."""
        if self.api_key is not None and self.api_secret is not None:
            return self.api_key, self.api_secret
        return self.account_sid, self.tokens[0]


_log = logging.getLogger("headway.telephony.twilio")

Fields = Mapping[str, object] | None


class WireClient(AsyncHttpClient):
    """The seam that the official client has for its HTTP.

    The default one logs telephone numbers, and does not show whether a request was sent.
    """

    def __init__(self, wire: Wire, base_url: str) -> None:
        """Send through the wire, to this address instead of Twilio's own."""
        super().__init__(_log, is_async=True)
        self._wire = wire
        self._base_url = base_url

    async def request(  # noqa: PLR0913, PLR0917  (the official client's own signature)
        self,
        method: str,
        uri: str,
        params: Fields = None,
        data: Fields = None,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  (as above)
        allow_redirects: bool = False,
    ) -> Response:
        """Send one request, once.

        Returns:
            A reply of 2xx.
        """
        del timeout, allow_redirects  # the wire has one limit for all, and follows nothing
        request = httpx.Request(
            method,
            self._placed(uri),
            params=_texts(params),
            data=_texts(data),
            headers=dict(headers or {}),
        )
        reply = await self._wire.send(request, httpx.BasicAuth(*auth) if auth else None)
        return Response(reply.status_code, reply.text, reply.headers)

    def _placed(self, uri: str) -> str:
        return self._base_url + uri.removeprefix(BASE_URL) if uri.startswith(BASE_URL) else uri


def _texts(fields: Fields) -> dict[str, str | list[str]] | None:
    if fields is None:
        return None
    return {name: _text(value) for name, value in fields.items() if value is not None}


def _text(value: object) -> str | list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(one) for one in value]  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]  (of any type)
    return str(value)


UNKNOWN = "20404"
"""There is no such call or message."""

SENDER = frozenset(
    {
        21210,  # the number to call from is not verified
        21212,  # or no number
        21213,  # or missing
        21401,  # cannot send messages
        21601,  # cannot send messages
        21603,  # the sender of a message is missing
        21606,  # cannot send messages to there
        21607,  # only the sandbox's number can send
        21611,  # too many of its messages wait
        21612,  # cannot send messages to there
        21616,  # matches several numbers
        21621,  # cannot send pictures
        21659,  # none of Twilio's
        21660,  # another account's
        21661,  # cannot send messages
    }
)
PROVIDER = frozenset(
    {
        10001,  # the account is not active
        10002,  # a trial account cannot do it
        10004,  # too many calls at once
        14107,  # too many messages at once
        20001,  # a parameter is unknown
        20003,  # who asks is not known
        20005,  # the account is not active
        20006,  # access denied
        20008,  # the account's test token
        20010,  # the account is suspended
        20404,  # no such account, where something is to be made
        20429,  # too many requests
        21205,  # a URL is unusable
        21218,  # no such application
        21609,  # the status callback's URL is unusable
        30001,  # the queue is full
        30002,  # the account is suspended
    }
)


class _Error(msgspec.Struct):
    code: int
    message: str = ""


def read_refusal(status: int, body: bytes) -> Refusal:
    """Return what a reply of 4xx says.

    Returns:
        Whom it concerns: by its code; else by its status; a reply that has no code is not
        Twilio's, and concerns whatever stands at that address.
    """
    try:
        said = msgspec.json.decode(body, type=_Error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refusal(concerns="provider", text="there is no error of Twilio's in the reply")
    return Refusal(concerns=_concerns(said.code, status), code=str(said.code), text=said.message)


def _concerns(code: int, status: int) -> str:
    if code in SENDER:
        return "sender"
    if code in PROVIDER or status in {401, 402, 403, 407}:
        return "provider"
    return "callee"


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


class _Call(Protocol):
    """A call, as far as the official client's record of one is read here."""

    sid: str | None
    status: str | None
    duration: str | None
    start_time: object


class Account:
    """See `Voice` and `Texts`."""

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
        script = order.script
        said: dict[str, Any] = (
            {"url": script.url} if isinstance(script, Fetch) else {"twiml": written(script)}
        )
        if order.limit_s is not None:
            said["time_limit"] = order.limit_s
        call = await understood(
            NAME,
            self._calls.create_async(
                to=order.to,
                from_=order.from_,
                status_callback=order.status_url,
                status_callback_event=EVENTS,
                status_callback_method="POST",
                timeout=order.ring_s,
                **said,
            ),
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
            await understood(NAME, self._calls(call_id).update_async(status=wanted))
        except ProviderRefused:
            call = await self._fetch(call_id)
            if call is None or not _status(call).ended:
                raise

    async def send(self, order: TextOrder) -> str:
        callback: dict[str, Any] = (
            {} if order.status_url is None else {"status_callback": order.status_url}
        )
        message = await understood(
            NAME,
            self._messages.create_async(
                to=order.to, from_=order.from_, body=order.text, **callback
            ),
        )
        return _named(message.sid)

    def verify(self, request: HookRequest, now: int) -> None:
        del now  # the signature does not say when it was made
        check_twilio(request, auth_tokens=self._tokens)

    read_status = staticmethod(read_status)
    read_pressed = staticmethod(read_pressed)
    read_text_status = staticmethod(read_text_status)
    read_inbound = staticmethod(read_inbound)

    def speak(self, script: Say | Ask) -> Spoken:
        return Spoken(written(script).encode(), XML)

    def reply_text(self, text: str | None) -> tuple[bytes, str]:
        return answered(text).encode(), XML

    async def close(self) -> None:
        await self._wire.close()

    async def _list(self, sought: Sought, more: dict[str, Any]) -> list[_Call]:
        found = await understood(
            NAME, self._calls.list_async(to=sought.to, from_=sought.from_, limit=MOST, **more)
        )
        return cast("list[_Call]", found)

    async def _fetch(self, call_id: str) -> _Call | None:
        try:
            return cast("_Call", await understood(NAME, self._calls(call_id).fetch_async()))
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


def _before(call: _Call, since: datetime) -> bool:
    # A call that still waits to be placed has not started.
    return isinstance(call.start_time, datetime) and call.start_time < since


def _named(sid: str | None) -> str:
    if not sid:
        message = "twilio's reply does not name the call or message"
        raise ProviderUnsure(message, hint=LOOK_IT_UP)
    return sid


def _status(call: _Call) -> CallStatus:
    return known_status(NAME, CALLS, str(call.status))


def make(settings: Mapping[str, object]) -> Account:
    """Make the provider."""
    return Account(read_table("telephony.twilio", TwilioSettings, settings))
