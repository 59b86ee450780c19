"""Messages and the account's numbers, as Twilio's API sends and fetches them.

Source: Twilio, "Messages resource", "IncomingPhoneNumber resource".
"""

from __future__ import annotations

from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headway.carrier.ledger import Text, TextPlan
from headway.carrier.twilio_server.replies import (
    PAGING,
    Shape,
    must_do,
    number_shape,
    page_of,
    reply_of,
    text_shape,
)
from headway.carrier.twilio_server.requests import (
    Fields,
    Refused,
    read_body,
    read_query,
    ref_of,
)
from headway.carrier.twilio_server.services import Services

_LONGEST = 1_600
_NEW = (
    *("To", "From", "Body", "StatusCallback", "ApplicationSid", "MaxPrice", "ProvideFeedback"),
    *("Attempt", "ValidityPeriod", "ForceDelivery", "ContentRetention", "AddressRetention"),
    *("SmartEncoded", "PersistentAction", "TrafficType", "ShortenUrls", "ScheduleType", "SendAt"),
    *("SendAsMms", "ContentVariables", "MessageIntent", "RiskCheck", "FallbackFrom"),
    *("MessagingServiceSid", "MediaUrl", "ContentSid"),
)


async def send(services: Services, request: Request) -> Response:
    """Send a message.

    Raises:
        Refused: it is not sent.
    """
    asked = await read_body(request, _NEW)
    to = asked.phone("To", missing=21604, invalid=21211)
    from_ = asked.phone("From", missing=21603, invalid=21212)
    if services.world.numbers and from_ not in services.world.numbers:
        raise Refused(21606, f"The 'From' phone number {from_} is not yours")
    body = asked.get("Body")
    if body is None:
        raise Refused(21602, "Message body is required")
    if len(body) > _LONGEST:
        raise Refused(21617, f"The message body exceeds {_LONGEST} characters")
    url = asked.url("StatusCallback", invalid=21609)
    plan = TextPlan(ref=ref_of(url), to=to, from_=from_, text=body, status_url=url)
    fate, nth = services.world.next_fate(to)
    must_do(fate, 21614)
    text = services.world.send(plan, fate, nth)
    return await reply_of(services.world, fate, lambda: text_shape(services.account, text))


async def every(services: Services, request: Request) -> Response:
    """List messages, the newest first."""
    asked = read_query(request, (*PAGING, "To", "From", "DateSent", "DateSent<", "DateSent>"))
    texts = [one for one in services.world.ledger.texts.values() if _fits(asked, one)]
    texts.reverse()
    shape = page_of(
        request, asked, "messages", texts, lambda one: text_shape(services.account, one)
    )
    return JSONResponse(shape)


async def show(services: Services, request: Request) -> Response:
    """Fetch one message.

    Raises:
        Refused: there is none.
    """
    text = services.world.ledger.texts.get(request.path_params["sid"])
    if text is None:
        raise Refused(20404, f"The requested resource {request.url.path} was not found")
    return JSONResponse(text_shape(services.account, text))


async def add_number(services: Services, request: Request) -> Response:
    """Add a number to the account, with the URL that receives its inbound messages."""
    known = ("PhoneNumber", "SmsUrl", "SmsMethod", "FriendlyName", "VoiceUrl", "VoiceMethod")
    asked = await read_body(request, known)
    number = asked.phone("PhoneNumber", missing=21421, invalid=21421)
    url = asked.url("SmsUrl", invalid=21502)
    if services.world.numbers:
        services.world.numbers.add(number)
    if url is not None:
        services.world.inbound_urls[number] = url
    return JSONResponse(_shape(services, number), 201)


async def numbers(services: Services, request: Request) -> Response:
    """List the account's own numbers."""
    asked = read_query(request, (*PAGING, "PhoneNumber"))
    known = sorted(services.world.numbers | (services.world.inbound_urls.keys() - {""}))
    found = [one for one in known if asked.get("PhoneNumber") in {None, one}]
    name = "incoming_phone_numbers"
    return JSONResponse(page_of(request, asked, name, found, lambda one: _shape(services, one)))


def _shape(services: Services, number: str) -> Shape:
    sid = f"PN{blake2b(number.encode(), digest_size=16).hexdigest()}"
    return number_shape(services.account, sid, number, services.world.inbound_urls.get(number, ""))


def _fits(asked: Fields, text: Text) -> bool:
    plan = text.plan
    return asked.get("To") in {None, plan.to} and asked.get("From") in {None, plan.from_}
