"""Twilio: calls and messages through its official client, and the reading of its refusals.

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
from twilio.http import AsyncHttpClient  # pyright: ignore[reportMissingTypeStubs]  (typed, but without py.typed)
from twilio.http.response import Response  # pyright: ignore[reportMissingTypeStubs]  (as above)
from twilio.rest import Client  # pyright: ignore[reportMissingTypeStubs]  (typed, but without py.typed)

from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.runtime.settings_table import BaseUrl, Span, Table, read_table
from headway.runtime.timing import REAL, Timing
from headway.server.hooks.providers import Keys
from headway.server.hooks.request import HookRequest
from headway.server.hooks.signals import event_id
from headway.server.hooks.twilio import check_twilio
from headway.systems.telephony.http import LOOK_IT_UP, ProviderHttp, Refusal, client_result
from headway.systems.telephony.texts import TextOrder
from headway.systems.telephony.twilio_webhooks import (
    CALLS,
    NAME,
    read_inbound,
    read_pressed,
    read_status,
    read_text_status,
    reply_text,
    speak,
    to_twiml,
)
from headway.systems.telephony.voice import (
    SKEW_MS,
    CallEvent,
    CallOrder,
    CallStatus,
    Dialled,
    Fetch,
    NotFound,
    Sought,
    known_status,
    only_match,
)

BASE_URL = "https://api.twilio.com"


class TwilioSettings(Table):
    """`[telephony.twilio]`.

    Attributes:
        account_sid: SID of the account, `AC…`.
        auth_token: token of the account.
        auth_tokens: several tokens during a rotation: the first sends, all verify webhooks.
        api_key: `SK…`, to send with instead of the account's token.
        api_secret: secret of the key.
        base_url: URL of the API.
        timeout: maximum time until a reply is complete, ms.
        edge: where requests enter Twilio's network.
        region: where requests are processed.
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
            message = "set auth_token or auth_tokens, which verify webhooks"
            raise ValueError(message)
        if (self.api_key is None) != (self.api_secret is None):
            message = "set both api_key and api_secret, or neither"
            raise ValueError(message)
        if self.base_url != BASE_URL and (self.edge or self.region):
            message = "set base_url, or edge and region, which are parts of Twilio's own URL"
            raise ValueError(message)
        return self

    @property
    def tokens(self) -> tuple[str, ...]:
        """All of the account's tokens; the first one sends."""
        return self.auth_tokens if self.auth_token is None else (self.auth_token,)

    @property
    def user(self) -> tuple[str, str]:
        """User name and password for requests."""
        if self.api_key is not None and self.api_secret is not None:
            return self.api_key, self.api_secret
        return self.account_sid, self.tokens[0]


_log = logging.getLogger("headway.telephony.twilio")

_Fields = Mapping[str, object] | None


class ProviderHttpClient(AsyncHttpClient):
    """The official client's HTTP transport, over `ProviderHttp`.

    The default one logs phone numbers, and does not report whether a request was sent.
    """

    def __init__(self, http: ProviderHttp, base_url: str) -> None:
        """Send through the http, to this URL instead of Twilio's own."""
        super().__init__(_log, is_async=True)
        self._http = http
        self._base_url = base_url

    async def request(  # noqa: PLR0913, PLR0917  (the official client's own signature)
        self,
        method: str,
        uri: str,
        params: _Fields = None,
        data: _Fields = None,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  (as above)
        allow_redirects: bool = False,
    ) -> Response:
        """Send one request, once.

        Returns:
            A reply of 2xx.
        """
        del timeout, allow_redirects  # `ProviderHttp` has its own timeout, and follows no redirects
        request = httpx.Request(
            method,
            self._at_base_url(uri),
            params=_texts(params),
            data=_texts(data),
            headers=dict(headers or {}),
        )
        reply = await self._http.send(request, httpx.BasicAuth(*auth) if auth else None)
        return Response(reply.status_code, reply.text, reply.headers)

    def _at_base_url(self, uri: str) -> str:
        return self._base_url + uri.removeprefix(BASE_URL) if uri.startswith(BASE_URL) else uri


def _texts(fields: _Fields) -> dict[str, str | list[str]] | None:
    if fields is None:
        return None
    return {name: _text(value) for name, value in fields.items() if value is not None}


def _text(value: object) -> str | list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(one) for one in value]  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]  (of any type)
    return str(value)


UNKNOWN = "20404"
"""Code for an unknown call or message."""

SENDER = frozenset(
    {
        21210,  # the number to call from is not verified
        21212,  # the number to call from is not valid
        21213,  # the number to call from is missing
        21401,  # cannot send messages
        21601,  # cannot send messages
        21603,  # the sender of a message is missing
        21606,  # cannot send messages to this recipient
        21607,  # only the sandbox's number can send
        21611,  # too many queued messages
        21612,  # cannot send messages to this recipient
        21616,  # matches several numbers
        21621,  # cannot send pictures
        21659,  # not a Twilio number
        21660,  # belongs to another account
        21661,  # cannot send messages
    }
)
PROVIDER = frozenset(
    {
        10001,  # the account is not active
        10002,  # not allowed for a trial account
        10004,  # too many concurrent calls
        14107,  # too many concurrent messages
        20001,  # unknown parameter
        20003,  # authentication failed
        20005,  # the account is not active
        20006,  # access denied
        20008,  # not allowed with test credentials
        20010,  # the account is suspended
        20404,  # the account does not exist, if something is to be created
        20429,  # too many requests
        21218,  # the application does not exist
        21609,  # the status callback's URL is not valid
        30001,  # the queue is full
        30002,  # the account is suspended
    }
)
CALLEE = frozenset(
    {
        21205,  # the URL of the script is not valid
        21211,  # the number to reach is not valid
        21214,  # the number to reach cannot be reached
        21215,  # the account may not call that country
        21216,  # the account may not call that number
        21217,  # the number to reach is not valid
        21408,  # the account may not send messages to that country
        21610,  # the recipient has sent STOP
        21614,  # the number to reach is no mobile
    }
)
"""Codes about the callee whatever the status, which may be 403 if a call is not allowed. Any other
code is about the callee, too, unless its status is about the provider."""


class _Error(msgspec.Struct):
    code: int
    message: str = ""


def read_refusal(status: int, body: bytes) -> Refusal:
    """Read a reply of 4xx.

    Returns:
        The refusal. What it concerns depends on its code, then on its status; a reply without a
        code is not from Twilio, and concerns the provider.
    """
    try:
        error = msgspec.json.decode(body, type=_Error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refusal(concerns="provider", text="the reply contains no Twilio error")
    return Refusal(concerns=_concerns(error.code, status), code=str(error.code), text=error.message)


def _concerns(code: int, status: int) -> str:
    if code in SENDER:
        return "sender"
    if code in PROVIDER or (code not in CALLEE and status in {401, 402, 403, 407}):
        return "provider"
    return "callee"


EVENTS = ["initiated", "ringing", "answered", "completed"]
MOST = 50
"""Maximum number of calls listed in a look-up."""


class _Call(Protocol):
    """The fields read from the official client's record of a call."""

    sid: str | None
    status: str | None
    duration: str | None
    start_time: object


class Account:
    """A Twilio account: see `Voice` and `TextProvider`."""

    name = NAME

    def __init__(self, settings: TwilioSettings, *, timing: Timing = REAL) -> None:
        """Create it without connecting."""
        self._tokens = settings.tokens
        self._http = ProviderHttp(
            self.name, read_refusal, timeout_ms=settings.timeout, timing=timing
        )
        self.answers_ms = self._http.answers_ms
        user, password = settings.user
        client = Client(
            user,
            password,
            settings.account_sid,
            edge=settings.edge,
            region=settings.region,
            http_client=ProviderHttpClient(self._http, settings.base_url),
            # Ignore the TWILIO_… environment variables.
            environment={"": ""},
        )
        # The client imports these on first access, which would block the event loop later.
        self._calls, self._messages = client.calls, client.messages

    async def dial(self, order: CallOrder) -> Dialled:
        script = order.script
        options: dict[str, Any] = (
            {"url": script.url} if isinstance(script, Fetch) else {"twiml": to_twiml(script)}
        )
        if order.limit_s is not None:
            options["time_limit"] = order.limit_s
        call = await client_result(
            NAME,
            self._calls.create_async(
                to=order.to,
                from_=order.from_,
                status_callback=order.status_url,
                status_callback_event=EVENTS,
                status_callback_method="POST",
                timeout=order.ring_s,
                **options,
            ),
        )
        return Dialled(self.name, _named(call.sid))

    async def look_up(self, sought: Sought) -> CallEvent | NotFound:
        try:
            if sought.call_id is not None:
                call = await self._fetch(sought.call_id)
                return NotFound.UNCLEAR if call is None else self._event(call, sought)
            since = datetime.fromtimestamp((sought.since - SKEW_MS) // 1000, UTC)
            # Queued calls have no start time yet, so they are listed separately; in this order, so
            # that a call that starts in between is in the second list.
            listed = {
                one.sid: one
                for more in ({"status": "queued"}, {"start_time_after": since})
                for one in await self._list(sought, more)
            }
        except ProviderRefused as refused:
            message = f"twilio cannot be queried: {refused.message}"
            raise ProviderUnsure(message, hint=refused.hint) from refused
        found = [
            one
            for one in listed.values()
            if one.sid not in sought.others and not _before(one, since)
        ]
        return only_match([self._event(one, sought) for one in found])

    async def hang_up(self, call_id: str) -> None:
        # "completed" also ends queued and ringing calls; "canceled" would not end a call that was
        # just answered.
        wanted = CallStatus.COMPLETED.value
        try:
            await client_result(NAME, self._calls(call_id).update_async(status=wanted))
        except ProviderRefused:
            call = await self._fetch(call_id)
            if call is None or not _status(call).ended:
                raise

    async def send(self, order: TextOrder) -> str:
        callback: dict[str, Any] = (
            {} if order.status_url is None else {"status_callback": order.status_url}
        )
        message = await client_result(
            NAME,
            self._messages.create_async(
                to=order.to, from_=order.from_, body=order.text, **callback
            ),
        )
        return _named(message.sid)

    def verify(self, request: HookRequest, now: int) -> None:
        del now  # the signature contains no time
        check_twilio(request, auth_tokens=self._tokens)

    read_status = staticmethod(read_status)
    read_pressed = staticmethod(read_pressed)
    read_text_status = staticmethod(read_text_status)
    read_inbound = staticmethod(read_inbound)
    speak = staticmethod(speak)
    reply_text = staticmethod(reply_text)

    async def close(self) -> None:
        await self._http.close()

    async def _list(self, sought: Sought, more: dict[str, Any]) -> list[_Call]:
        found = await client_result(
            NAME, self._calls.list_async(to=sought.to, from_=sought.from_, limit=MOST, **more)
        )
        return cast("list[_Call]", found)

    async def _fetch(self, call_id: str) -> _Call | None:
        try:
            return cast("_Call", await client_result(NAME, self._calls(call_id).fetch_async()))
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
    # A queued call has no start time.
    return isinstance(call.start_time, datetime) and call.start_time < since


def _named(sid: str | None) -> str:
    if not sid:
        message = "twilio's reply contains no id of the call or message"
        raise ProviderUnsure(message, hint=LOOK_IT_UP)
    return sid


def _status(call: _Call) -> CallStatus:
    return known_status(NAME, CALLS, str(call.status))


def make(settings: Mapping[str, object]) -> Account:
    """Create the provider from its settings.

    Raises:
        InvalidValue: the settings are not valid.
    """
    return Account(read_table("telephony.twilio", TwilioSettings, settings))
