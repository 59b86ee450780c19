"""Calls, messages and numbers: the operations of Twilio's API.

Source: Twilio, "Calls resource", "Messages resource", "IncomingPhoneNumber resource".
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headway.carrier.ledger import CallPlan, PlacedCall, TextMessage, TextPlan
from headway.carrier.twilio_replies import (
    PAGING,
    JsonObject,
    call_shape,
    must_do,
    number_shape,
    page_of,
    reply_of,
    text_shape,
)
from headway.carrier.twilio_requests import (
    FormFields,
    RequestRefused,
    Services,
    read_body,
    read_query,
    ref_of,
)
from headway.systems.telephony.voice import CallStatus

_EVENTS = frozenset({"initiated", "ringing", "answered", "completed"})
_SCRIPT_FIELDS = ("Url", "Method", "Twiml", "FallbackUrl", "FallbackMethod", "TimeLimit")
_STATUS_FIELDS = ("StatusCallback", "StatusCallbackMethod")
_CALL_FIELDS = (
    *_SCRIPT_FIELDS,
    *_STATUS_FIELDS,
    *("To", "From", "StatusCallbackEvent", "Timeout", "ApplicationSid", "SendDigits", "Record"),
    *("RecordingChannels", "RecordingStatusCallback", "RecordingStatusCallbackMethod"),
    *("RecordingConfigurationId", "RecordingStatusCallbackEvent", "RecordingTrack", "Trim"),
    *("SipAuthUsername", "SipAuthPassword", "CallerId", "Byoc", "CallReason", "CallToken"),
    *("MachineDetection", "MachineDetectionTimeout", "MachineDetectionSpeechThreshold"),
    *("MachineDetectionSpeechEndThreshold", "MachineDetectionSilenceTimeout", "AsyncAmd"),
    *("AsyncAmdStatusCallback", "AsyncAmdStatusCallbackMethod", "Passports"),
    "ClientNotificationUrl",
)
_MOMENTS = tuple(f"{which}Time{how}" for which in ("Start", "End") for how in ("", "<", ">"))


async def place_call(services: Services, request: Request) -> Response:
    """Place a call.

    Raises:
        RequestRefused: the call is not placed.
    """
    asked = await read_body(request, _CALL_FIELDS)
    plan = _plan(services, asked)
    outcome, nth = services.network.next_outcome(plan.to)
    must_do(outcome, 21217)
    call = services.network.place(plan, outcome, nth)
    return await reply_of(services.network, outcome, lambda: call_shape(services.account, call))


async def list_calls(services: Services, request: Request) -> Response:
    """List calls, newest first."""
    asked = read_query(request, (*PAGING, *_MOMENTS, "To", "From", "Status", "ParentCallSid"))
    calls = [one for one in services.network.ledger.calls.values() if _is_call_wanted(asked, one)]
    calls.reverse()
    shape = page_of(request, asked, "calls", calls, lambda one: call_shape(services.account, one))
    return JSONResponse(shape)


async def show_call(services: Services, request: Request) -> Response:
    """Fetch one call.

    Raises:
        RequestRefused: there is no such call.
    """
    return JSONResponse(call_shape(services.account, _call(services, request)))


async def change_call(services: Services, request: Request) -> Response:
    """End a call, or replace its script.

    Raises:
        RequestRefused: the call's status does not allow it.
    """
    asked = await read_body(request, (*_SCRIPT_FIELDS, *_STATUS_FIELDS, "Status"))
    call = _call(services, request)
    status = asked.get("Status")
    url, words = asked.url("Url", invalid=21205), asked.get("Twiml")
    if status not in {None, "canceled", "completed"}:
        raise RequestRefused(21218, f"Status cannot be set to {status}")
    if call.status.ended:
        raise RequestRefused(21220, "Call is not in-progress. Cannot redirect.")
    if status == "completed" or (status and call.status is not CallStatus.IN_PROGRESS):
        await services.network.hang_up(call.sid)
        return JSONResponse(call_shape(services.account, call))
    replaces = url is not None or words is not None
    if replaces and not services.network.replace_script(
        call.sid, words, url, asked.method("Method")
    ):
        raise RequestRefused(21220, "Call is not in-progress. Cannot redirect.")
    return JSONResponse(call_shape(services.account, call))


def _plan(services: Services, asked: FormFields) -> CallPlan:
    to = asked.phone("To", missing=21201, invalid=21211)
    from_ = asked.phone("From", missing=21213, invalid=21212)
    if services.network.numbers and from_ not in services.network.numbers:
        raise RequestRefused(
            21210, f"Source phone number not yet verified for your account: {from_}"
        )
    words, url = asked.get("Twiml"), asked.url("Url", invalid=21205)
    if (words is None) == (url is None):
        raise RequestRefused(21205, "Exactly one of Url and Twiml is required")
    status_url = asked.url("StatusCallback", invalid=21609)
    events = frozenset(asked.all("StatusCallbackEvent")) or frozenset({"completed"})
    if events - _EVENTS:
        raise RequestRefused(
            21626, f"Invalid status callback events: {', '.join(events - _EVENTS)}"
        )
    return CallPlan(
        ref=ref_of(status_url) or ref_of(url),
        to=to,
        from_=from_,
        words=words,
        words_url=url,
        words_method=asked.method("Method"),
        status_url=status_url,
        status_events=events,
        status_method=asked.method("StatusCallbackMethod"),
        ring_ms=asked.number("Timeout", 60, 600) * 1_000,
        limit_ms=asked.number("TimeLimit", 14_400, 86_400) * 1_000,
    )


def _call(services: Services, request: Request) -> PlacedCall:
    call = services.network.ledger.calls.get(request.path_params["sid"])
    if call is None:
        raise RequestRefused(20404, f"The requested resource {request.url.path} was not found")
    return call


def _is_call_wanted(asked: FormFields, call: PlacedCall) -> bool:
    plan, status = call.plan, asked.get("Status")
    began = None if call.status is CallStatus.QUEUED else call.placed_at
    return (
        asked.get("To") in {None, plan.to}
        and asked.get("From") in {None, plan.from_}
        and status in {None, call.status.value}
        and _is_time_wanted(asked, "StartTime", began)
        and _is_time_wanted(asked, "EndTime", call.ended_at)
    )


def _is_time_wanted(asked: FormFields, name: str, at: int | None) -> bool:
    """Return whether a time matches the query; Twilio's times are whole seconds."""
    after, before, on = asked.get(f"{name}>"), asked.get(f"{name}<"), asked.get(name)
    if after is None and before is None and on is None:
        return True
    if at is None:
        return False
    second = at // 1000
    return (
        (after is None or second >= _bounds(name, after)[0])
        and (before is None or second <= _bounds(name, before)[1])
        and (on is None or _bounds(name, on)[0] <= second <= _bounds(name, on)[1])
    )


def _bounds(name: str, text: str) -> tuple[int, int]:
    """Return the first and the last second of a time or a day.

    Raises:
        RequestRefused: it is neither.
    """
    try:
        if len(text) == 10:
            day = date.fromisoformat(text)
            first = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
            return first, first + 86_399
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise RequestRefused(20001, f"{name} is not a valid time: {text[:40]}") from None
    second = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return second, second


_LONGEST = 1_600
_TEXT_FIELDS = (
    *("To", "From", "Body", "StatusCallback", "ApplicationSid", "MaxPrice", "ProvideFeedback"),
    *("Attempt", "ValidityPeriod", "ForceDelivery", "ContentRetention", "AddressRetention"),
    *("SmartEncoded", "PersistentAction", "TrafficType", "ShortenUrls", "ScheduleType", "SendAt"),
    *("SendAsMms", "ContentVariables", "MessageIntent", "RiskCheck", "FallbackFrom"),
    *("MessagingServiceSid", "MediaUrl", "ContentSid"),
)


async def send_text(services: Services, request: Request) -> Response:
    """Send a message.

    Raises:
        RequestRefused: it is not sent.
    """
    asked = await read_body(request, _TEXT_FIELDS)
    to = asked.phone("To", missing=21604, invalid=21211)
    from_ = asked.phone("From", missing=21603, invalid=21212)
    if services.network.numbers and from_ not in services.network.numbers:
        raise RequestRefused(21606, f"The 'From' phone number {from_} is not yours")
    body = asked.get("Body")
    if body is None:
        raise RequestRefused(21602, "Message body is required")
    if len(body) > _LONGEST:
        raise RequestRefused(21617, f"The message body exceeds {_LONGEST} characters")
    url = asked.url("StatusCallback", invalid=21609)
    plan = TextPlan(ref=ref_of(url), to=to, from_=from_, text=body, status_url=url)
    outcome, nth = services.network.next_outcome(to)
    must_do(outcome, 21614)
    text = services.network.send(plan, outcome, nth)
    return await reply_of(services.network, outcome, lambda: text_shape(services.account, text))


async def list_texts(services: Services, request: Request) -> Response:
    """List messages, newest first."""
    asked = read_query(request, (*PAGING, "To", "From", "DateSent", "DateSent<", "DateSent>"))
    texts = [one for one in services.network.ledger.texts.values() if _is_text_wanted(asked, one)]
    texts.reverse()
    shape = page_of(
        request, asked, "messages", texts, lambda one: text_shape(services.account, one)
    )
    return JSONResponse(shape)


async def show_text(services: Services, request: Request) -> Response:
    """Fetch one message.

    Raises:
        RequestRefused: there is no such message.
    """
    text = services.network.ledger.texts.get(request.path_params["sid"])
    if text is None:
        raise RequestRefused(20404, f"The requested resource {request.url.path} was not found")
    return JSONResponse(text_shape(services.account, text))


async def add_number(services: Services, request: Request) -> Response:
    """Add a number to the account, with the URL that receives its inbound messages."""
    known = ("PhoneNumber", "SmsUrl", "SmsMethod", "FriendlyName", "VoiceUrl", "VoiceMethod")
    asked = await read_body(request, known)
    number = asked.phone("PhoneNumber", missing=21421, invalid=21421)
    url = asked.url("SmsUrl", invalid=21502)
    if services.network.numbers:
        services.network.numbers.add(number)
    if url is not None:
        services.network.inbound_urls[number] = url
    return JSONResponse(_shape(services, number), 201)


async def list_numbers(services: Services, request: Request) -> Response:
    """List the account's numbers."""
    asked = read_query(request, (*PAGING, "PhoneNumber"))
    known = sorted(services.network.numbers | (services.network.inbound_urls.keys() - {""}))
    found = [one for one in known if asked.get("PhoneNumber") in {None, one}]
    name = "incoming_phone_numbers"
    return JSONResponse(page_of(request, asked, name, found, lambda one: _shape(services, one)))


def _shape(services: Services, number: str) -> JsonObject:
    sid = f"PN{blake2b(number.encode(), digest_size=16).hexdigest()}"
    return number_shape(
        services.account, sid, number, services.network.inbound_urls.get(number, "")
    )


def _is_text_wanted(asked: FormFields, text: TextMessage) -> bool:
    plan = text.plan
    return asked.get("To") in {None, plan.to} and asked.get("From") in {None, plan.from_}
