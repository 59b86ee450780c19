"""Messages and the account's numbers, as Twilio's API sends and tells them.

Source: Twilio, "Messages resource", "IncomingPhoneNumber resource".
"""

from __future__ import annotations

from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headway.carrier.ledger import Text, TextPlan
from headway.carrier.twilio_server.asked import (
    Fields,
    read_body,
    read_query,
    ref_of,
)
from headway.carrier.twilio_server.desk import Desk
from headway.carrier.twilio_server.paging import PAGING, page_of
from headway.carrier.twilio_server.problems import Refused
from headway.carrier.twilio_server.replying import must_do, reply_of
from headway.carrier.twilio_server.shapes import (
    Shape,
    number_shape,
    text_shape,
)

_LONGEST = 1_600
_NEW = (
    *("To", "From", "Body", "StatusCallback", "ApplicationSid", "MaxPrice", "ProvideFeedback"),
    *("Attempt", "ValidityPeriod", "ForceDelivery", "ContentRetention", "AddressRetention"),
    *("SmartEncoded", "PersistentAction", "TrafficType", "ShortenUrls", "ScheduleType", "SendAt"),
    *("SendAsMms", "ContentVariables", "MessageIntent", "RiskCheck", "FallbackFrom"),
    *("MessagingServiceSid", "MediaUrl", "ContentSid"),
)


async def send(desk: Desk, request: Request) -> Response:
    """Sends a message.

    Raises:
        Refused: it is not sent.
    """
    asked = await read_body(request, _NEW)
    to = asked.phone("To", missing=21604, invalid=21211)
    from_ = asked.phone("From", missing=21603, invalid=21212)
    if desk.world.numbers and from_ not in desk.world.numbers:
        raise Refused(21606, f"The 'From' phone number {from_} is not yours")
    body = asked.get("Body")
    if body is None:
        raise Refused(21602, "Message body is required")
    if len(body) > _LONGEST:
        raise Refused(21617, f"The message body exceeds {_LONGEST} characters")
    url = asked.url("StatusCallback", invalid=21609)
    plan = TextPlan(ref=ref_of(url), to=to, from_=from_, text=body, status_url=url)
    fate, nth = desk.world.next_fate(to)
    must_do(fate, 21614)
    text = desk.world.send(plan, fate, nth)
    return await reply_of(desk.world, fate, lambda: text_shape(desk.account, text))


async def every(desk: Desk, request: Request) -> Response:
    """Lists messages, the newest first."""
    asked = read_query(request, (*PAGING, "To", "From", "DateSent", "DateSent<", "DateSent>"))
    texts = [one for one in desk.world.ledger.texts.values() if _fits(asked, one)]
    texts.reverse()
    shape = page_of(request, asked, "messages", texts, lambda one: text_shape(desk.account, one))
    return JSONResponse(shape)


async def tell(desk: Desk, request: Request) -> Response:
    """Tells of one message.

    Raises:
        Refused: there is none.
    """
    text = desk.world.ledger.texts.get(request.path_params["sid"])
    if text is None:
        raise Refused(20404, f"The requested resource {request.url.path} was not found")
    return JSONResponse(text_shape(desk.account, text))


async def add_number(desk: Desk, request: Request) -> Response:
    """Makes a number the account's own, and says where it is told that somebody wrote to it."""
    known = ("PhoneNumber", "SmsUrl", "SmsMethod", "FriendlyName", "VoiceUrl", "VoiceMethod")
    asked = await read_body(request, known)
    number = asked.phone("PhoneNumber", missing=21421, invalid=21421)
    url = asked.url("SmsUrl", invalid=21502)
    if desk.world.numbers:
        desk.world.numbers.add(number)
    if url is not None:
        desk.world.inbound_urls[number] = url
    return JSONResponse(_shape(desk, number), 201)


async def numbers(desk: Desk, request: Request) -> Response:
    """Lists the account's own numbers."""
    asked = read_query(request, (*PAGING, "PhoneNumber"))
    known = sorted(desk.world.numbers | (desk.world.inbound_urls.keys() - {""}))
    found = [one for one in known if asked.get("PhoneNumber") in {None, one}]
    name = "incoming_phone_numbers"
    return JSONResponse(page_of(request, asked, name, found, lambda one: _shape(desk, one)))


def _shape(desk: Desk, number: str) -> Shape:
    sid = f"PN{blake2b(number.encode(), digest_size=16).hexdigest()}"
    return number_shape(desk.account, sid, number, desk.world.inbound_urls.get(number, ""))


def _fits(asked: Fields, text: Text) -> bool:
    plan = text.plan
    return asked.get("To") in {None, plan.to} and asked.get("From") in {None, plan.from_}
