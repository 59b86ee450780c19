"""Replies of the carrier: resources in Twilio's format, paged lists, and cut replies.

Source: Twilio, "Calls resource", "Messages resource", "IncomingPhoneNumber resource", "Paging
through list resources".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from headway.carrier.ledger import PlacedCall, TextMessage
from headway.carrier.network import PhoneNetwork
from headway.carrier.script import DrawnOutcome, RequestResult
from headway.carrier.twilio_requests import FormFields, RequestRefused
from headway.carrier.webhooks import rfc2822
from headway.server.hooks.request import read_form
from headway.systems.telephony.voice import CallStatus

JsonObject = dict[str, object]

_API = "/2010-04-01/Accounts"


def call_shape(account: str, call: PlacedCall) -> JsonObject:
    """Return a call in Twilio's format."""
    plan = call.plan
    uri = f"{_API}/{account}/Calls/{call.sid}"
    began = None if call.status is CallStatus.QUEUED else rfc2822(call.placed_at)
    return {
        "account_sid": account,
        "annotation": None,
        "answered_by": None,
        "api_version": "2010-04-01",
        "caller_name": None,
        "date_created": rfc2822(call.placed_at),
        "date_updated": rfc2822(call.ended_at or call.answered_at or call.placed_at),
        "direction": "outbound-api",
        "duration": None if call.duration_s is None else str(call.duration_s),
        "end_time": None if call.ended_at is None else rfc2822(call.ended_at),
        "forwarded_from": None,
        "from": plan.from_,
        "from_formatted": plan.from_,
        "group_sid": None,
        "parent_call_sid": None,
        "phone_number_sid": None,
        "price": None,
        "price_unit": "USD",
        "queue_time": "0",
        "sid": call.sid,
        "start_time": began,
        "status": call.status.value,
        "subresource_uris": {"events": f"{uri}/Events.json"},
        "to": plan.to,
        "to_formatted": plan.to,
        "trunk_sid": None,
        "uri": f"{uri}.json",
    }


def text_shape(account: str, text: TextMessage) -> JsonObject:
    """Return a message in Twilio's format."""
    plan = text.plan
    failed = text.status.value == "undelivered"
    return {
        "account_sid": account,
        "api_version": "2010-04-01",
        "body": plan.text,
        "date_created": rfc2822(text.sent_at),
        "date_sent": None if text.status.value == "queued" else rfc2822(text.sent_at),
        "date_updated": rfc2822(text.sent_at),
        "direction": "inbound" if text.inbound else "outbound-api",
        "error_code": 30003 if failed else None,
        "error_message": "Unreachable destination handset" if failed else None,
        "from": plan.from_,
        "messaging_service_sid": None,
        "num_media": "0",
        "num_segments": "1",
        "price": None,
        "price_unit": "USD",
        "sid": text.sid,
        "status": "received" if text.inbound else text.status.value,
        "subresource_uris": {"media": f"{_API}/{account}/Messages/{text.sid}/Media.json"},
        "to": plan.to,
        "uri": f"{_API}/{account}/Messages/{text.sid}.json",
    }


def number_shape(account: str, sid: str, number: str, sms_url: str) -> JsonObject:
    """Return one of the account's numbers in Twilio's format."""
    return {
        "account_sid": account,
        "api_version": "2010-04-01",
        "capabilities": {"fax": False, "mms": False, "sms": True, "voice": True},
        "friendly_name": number,
        "phone_number": number,
        "sid": sid,
        "sms_method": "POST",
        "sms_url": sms_url,
        "status": "in-use",
        "uri": f"{_API}/{account}/IncomingPhoneNumbers/{sid}.json",
    }


PAGING = ("Page", "PageSize", "PageToken")
"""Query parameters that select a page."""

_USUAL, _MOST = 50, 1_000

One = TypeVar("One")


def page_of(
    request: Request,
    asked: FormFields,
    name: str,
    found: Sequence[One],
    shape: Callable[[One], JsonObject],
) -> JsonObject:
    """Return one page of a list, with its rows as the field `name`."""
    size = asked.number("PageSize", _USUAL, _MOST) or _USUAL
    page = asked.number("Page", 0, 10_000_000)
    start = page * size
    rows = found[start : start + size]

    def uri(number: int) -> str:
        kept = [
            pair for pair in read_form(request.url.query) if pair[0] not in {"Page", "PageSize"}
        ]
        query = urlencode([*kept, ("PageSize", str(size)), ("Page", str(number))])
        return f"{request.url.path}?{query}"

    return {
        name: [shape(one) for one in rows],
        "end": max(start, start + len(rows) - 1),
        "first_page_uri": uri(0),
        "next_page_uri": uri(page + 1) if start + size < len(found) else None,
        "page": page,
        "page_size": size,
        "previous_page_uri": uri(page - 1) if page else None,
        "start": start,
        "uri": uri(page),
    }


class Silence(Response):
    """A reply that never comes: the connection stays open until the caller gives up."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait until the caller has disconnected."""
        del scope
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body"})


class Cut(JSONResponse):
    """A reply that is cut in the middle."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send half of the body, so that the server closes the connection."""

        async def half(message: Message) -> None:
            if message["type"] == "http.response.body":
                body: bytes = message["body"]
                message = {**message, "body": body[: len(body) // 2], "more_body": True}
            await send(message)

        await super().__call__(scope, receive, half)


def must_do(outcome: DrawnOutcome, code: int) -> None:
    """Raise unless a request is carried out, whatever its reply.

    Args:
        code: code for a refusal because of the number.

    Raises:
        RequestRefused: the request is not carried out.
    """
    match outcome.request:
        case RequestResult.REFUSED:
            raise RequestRefused(code, "Phone number does not appear to be valid")
        case RequestResult.TOO_MANY:
            raise RequestRefused(20429, "Too Many Requests")
        case RequestResult.BROKEN:
            raise RequestRefused(20500, "Internal Server Error")
        case RequestResult.TAKEN | RequestResult.UNSURE | RequestResult.CUT:
            pass


async def reply_of(
    network: PhoneNetwork, outcome: DrawnOutcome, shape: Callable[[], JsonObject]
) -> Response:
    """Return the reply to a request that was carried out."""
    if network.rates.reply:
        await network.pace.pause(network.rates.reply)
    match outcome.request:
        case RequestResult.UNSURE:
            return Silence()
        case RequestResult.CUT:
            return Cut(shape(), 201)
        case _:
            return JSONResponse(shape(), 201)


def must_be_there(network: PhoneNetwork, request: Request) -> None:
    """Raise if the provider is unavailable.

    Raises:
        RequestRefused: it is.
    """
    if network.rates.away:
        raise RequestRefused(20503, f"{request.url.path} is not available")
