"""How Twilio's official client reaches Twilio: by the wire; and what a refusal concerns.

Source: Twilio, "Error and Warning Dictionary".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import httpx
import msgspec
from twilio.http import AsyncHttpClient  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)
from twilio.http.response import Response  # pyright: ignore[reportMissingTypeStubs]  (as above)

from headway.systems.telephony.twilio.settings import BASE_URL
from headway.systems.telephony.wire import Refusal, Wire

_log = logging.getLogger("headway.telephony.twilio")

Fields = Mapping[str, object] | None


class WireClient(AsyncHttpClient):
    """The seam that the official client has for its HTTP.

    The default one logs telephone numbers, and does not show whether a request was sent.
    """

    def __init__(self, wire: Wire, base_url: str) -> None:
        """Sends by the wire, to this address instead of Twilio's own."""
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

        Raises:
            ProviderRefused: see `Wire.send`.
            ProviderUnsure: see `Wire.send`.
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
        return [str(one) for one in value]  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]  (of whatever sort)
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
    """What a reply of 4xx says.

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
