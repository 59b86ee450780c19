"""The webhooks of the simulated network: Twilio's fields, signed and sent.

Source: Twilio, "StatusCallback", "Gather", "Messaging webhooks".
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import urlencode

import httpx

from headway.carrier.application import CallNotice, DeliveryFailed, DeliveryRefused, reason_of_text
from headway.carrier.ledger import PlacedCall, TextMessage
from headway.systems.telephony.texts import TextStatus
from headway.systems.telephony.voice import CallStatus

_Fields = list[tuple[str, str]]

_VERSION = "2010-04-01"
SOURCE = "call-progress-events"


def rfc2822(at: int) -> str:
    """Return an instant in Twilio's format."""
    return format_datetime(datetime.fromtimestamp(at // 1000, UTC))


def call_fields(account: str, call: PlacedCall, status: str) -> _Fields:
    """Return the fields of every webhook about a call."""
    plan = call.plan
    return [
        ("AccountSid", account),
        ("ApiVersion", _VERSION),
        ("CallSid", call.sid),
        ("CallStatus", status),
        ("Called", plan.to),
        ("Caller", plan.from_),
        ("Direction", "outbound-api"),
        ("From", plan.from_),
        ("To", plan.to),
    ]


def status_fields(account: str, call: PlacedCall, notice: CallNotice) -> _Fields:
    """Return the fields of a status webhook about a call."""
    status = "initiated" if notice.event == "initiated" else notice.status.value
    fields = call_fields(account, call, status)
    fields += [
        ("Timestamp", rfc2822(notice.at)),
        ("CallbackSource", SOURCE),
        ("SequenceNumber", str(notice.number)),
    ]
    if notice.status.ended:
        length = notice.duration_s or 0
        fields += [("CallDuration", str(length)), ("Duration", str(-(-length // 60)))]
    if notice.status is CallStatus.FAILED:
        fields += [("SipResponseCode", "404"), ("ErrorCode", "32011")]
    return fields


def text_fields(account: str, text: TextMessage, status: TextStatus) -> _Fields:
    """Return the fields of a status webhook about a message."""
    fields = [
        ("AccountSid", account),
        ("ApiVersion", _VERSION),
        ("From", text.plan.from_),
        ("MessageSid", text.sid),
        ("MessageStatus", status.value),
        ("SmsSid", text.sid),
        ("SmsStatus", status.value),
        ("To", text.plan.to),
    ]
    if reason := reason_of_text(status):
        fields.append(("ErrorCode", reason.partition(" ")[0]))
    return fields


def inbound_fields(account: str, text: TextMessage) -> _Fields:
    """Return the fields of an inbound message's webhook."""
    return [
        ("AccountSid", account),
        ("ApiVersion", _VERSION),
        ("Body", text.plan.text),
        ("From", text.plan.from_),
        ("MessageSid", text.sid),
        ("NumMedia", "0"),
        ("NumSegments", "1"),
        ("SmsMessageSid", text.sid),
        ("SmsSid", text.sid),
        ("SmsStatus", "received"),
        ("To", text.plan.to),
    ]


TIMEOUT_S = 15
"""How long Twilio waits for an application's reply."""
_LATER = frozenset({408, 425, 429})


class HttpApplication:
    """An application that is reached over HTTP.

    Args:
        account: SID of the account, sent in each webhook.
        key: key that signs the webhooks.
    """

    def __init__(self, account: str, key: str) -> None:
        self._account = account
        self._key = key.encode()
        self._http: httpx.AsyncClient | None = None

    async def call_status(self, call: PlacedCall, notice: CallNotice) -> None:
        fields = status_fields(self._account, call, notice)
        await self._ask(call.plan.status_url or "", call.plan.status_method, fields)

    async def words(
        self, call: PlacedCall, url: str, method: str, more: Sequence[tuple[str, str]] = ()
    ) -> str:
        fields = [*call_fields(self._account, call, call.status.value), *more]
        return await self._ask(url, method, fields)

    async def text_status(self, text: TextMessage, status: TextStatus, number: int) -> None:
        del number
        await self._ask(
            text.plan.status_url or "", "POST", text_fields(self._account, text, status)
        )

    async def inbound(self, text: TextMessage, url: str) -> str:
        return await self._ask(url, "POST", inbound_fields(self._account, text))

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def _ask(self, url: str, method: str, fields: _Fields) -> str:
        if method == "GET":
            url = f"{url}{'&' if '?' in url else '?'}{urlencode(fields)}"
            fields = []
        try:
            # The signature covers the URL as requested, which httpx has normalized.
            url = str(httpx.URL(url))
        except httpx.InvalidURL as error:
            message = f"11100 {url!r:.200} is not a URL"
            raise DeliveryRefused(message) from error
        headers = {"X-Twilio-Signature": signature(self._key, url, fields)}
        if method != "GET":
            headers["Content-Type"] = "application/x-www-form-urlencoded; charset=UTF-8"
        if self._http is None:
            # Created at first use, because settings are read without an event loop.
            limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
            self._http = httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits, trust_env=False)
        try:
            reply = await self._http.request(
                method, url, content=urlencode(fields), headers=headers
            )
        except httpx.HTTPError as error:
            message = f"11200 {url} did not reply: {type(error).__name__}"
            raise DeliveryFailed(message) from error
        if reply.is_success:
            # Not `reply.text`: it fails if the reply names a charset that no text has.
            return reply.content.decode(errors="replace")
        message = f"11200 {url} replied with {reply.status_code}"
        if reply.is_server_error or reply.status_code in _LATER:
            raise DeliveryFailed(message)
        raise DeliveryRefused(message)


def signature(key: bytes, url: str, fields: _Fields) -> str:
    """Return Twilio's signature over a URL as requested and the sorted fields of the form."""
    text = url + "".join(name + value for name, value in sorted(fields))
    return b64encode(hmac.digest(key, text.encode(), "sha1")).decode()
