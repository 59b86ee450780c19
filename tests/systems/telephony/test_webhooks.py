"""Providers' webhooks at a system's own routes: verified, then read by the call's provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from hashlib import sha256
from typing import Annotated, Any

import httpx
import jwt
import pytest
from fastapi import APIRouter, Request
from twilio.request_validator import RequestValidator
from vonage_jwt import verify_signature

from headway.core.errors import InvalidValue
from headway.runtime.app import App
from headway.runtime.timing import Timing
from headway.server.access import public
from headway.server.caller import Caller
from headway.server.hooks.request import HookRequest
from headway.server.routing import TheService, router
from headway.server.service import Service
from headway.systems.telephony.providers import Telephony, read_webhook
from headway.systems.telephony.texts import TextStatus
from headway.systems.telephony.voice import Ask, CallStatus, Pressed, Say
from tests.server.rig import Rig, serving
from tests.systems.telephony.accounts import (
    ACCOUNT,
    CALL,
    FROM,
    MESSAGE,
    NEXT_TOKEN,
    SECRET,
    TO,
    TOKEN,
    UUID,
    twilio,
    vonage,
)

PUBLIC = "https://hooks.example.org/deep"


class Listening:
    """A system that returns the webhooks it receives."""

    name = "listening"

    def __init__(self, telephony: Telephony) -> None:
        routes = router("test")

        @routes.post("/t/hooks/{provider}", operation_id="test_hear")
        async def receive_status(
            request: Request, service: TheService, _: Annotated[Caller, public()], provider: str
        ) -> dict[str, Any]:
            """Return what was received."""
            came = await read_webhook(service, telephony, provider, request)
            event = telephony.voices[provider].read_status(came)
            return {} if event is None else {**asdict(event), "body": dict(event.body)}

        self.routers: Sequence[APIRouter] = (routes,)

    def declare(self, app: App) -> None:
        """Do nothing."""

    async def start(self, service: Service) -> None:
        """Do nothing."""


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[Rig]:
    account = twilio("http://127.0.0.1:1", auth_token=None, auth_tokens=(NEXT_TOKEN, TOKEN))
    application = vonage("http://127.0.0.1:1", signature_secret=SECRET)
    telephony = Telephony({"twilio": account, "vonage": application}, {"twilio": account})
    async with serving(systems=[Listening(telephony)], **options) as rig:
        yield rig
    await telephony.close()


def call_form(status: str = "completed", **more: str) -> dict[str, str]:
    """Return a status callback in Twilio's format."""
    return {
        "AccountSid": ACCOUNT,
        "ApiVersion": "2010-04-01",
        "CallSid": CALL,
        "CallStatus": status,
        "CallbackSource": "call-progress-events",
        "Direction": "outbound-api",
        "From": FROM,
        "To": TO,
        "SequenceNumber": "3",
        **more,
    }


async def twilio_posts(
    rig: Rig, form: Mapping[str, str], *, token: str = TOKEN, signed_for: str | None = None
) -> httpx.Response:
    """Post a form as Twilio does, signed by Twilio's own code."""
    path = "/t/hooks/twilio?ref=0190-job%3A3"
    url = (signed_for or rig.url) + path
    signature = RequestValidator(token).compute_signature(url, dict(form))
    headers = {"X-Twilio-Signature": signature}
    return await rig.http.post(path, data=dict(form), headers=headers)


def signed(body: bytes, *, secret: str = SECRET, at: int | None = None, **claims: Any) -> str:
    """Return an Authorization header as Vonage creates it; Vonage's own check accepts it."""
    iat = Timing().wall_at() // 1000 if at is None else at
    said = {"iat": iat, "jti": "x", "iss": "Vonage", "payload_hash": sha256(body).hexdigest()}
    token = jwt.encode({**said, **claims}, secret, algorithm="HS256")
    if secret == SECRET and at is None:
        assert verify_signature(token, SECRET)
    return f"Bearer {token}"


def vonage_said(status: str = "answered", **more: Any) -> bytes:
    """Return a status webhook in Vonage's format."""
    said = {
        "from": FROM[1:], "to": TO[1:], "uuid": UUID, "conversation_uuid": "CON-1",
        "status": status, "direction": "outbound", "timestamp": "2027-01-15T08:00:03.123Z",
    }  # fmt: skip
    return json.dumps({**said, **more}, separators=(",", ":")).encode()


async def vonage_posts(rig: Rig, body: bytes, authorization: str | None) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    if authorization is not None:
        headers["Authorization"] = authorization
    return await rig.http.post("/t/hooks/vonage?ref=0190-job%3A3", content=body, headers=headers)


async def test_webhook_signed_by_twilio_is_accepted_whichever_token_it_uses() -> None:
    async with listening() as rig:
        for token in (TOKEN, NEXT_TOKEN):
            reply = await twilio_posts(rig, call_form(CallDuration="61"), token=token)
            assert reply.status_code == 200, reply.text
        said = reply.json()
    assert said["ref"] == "0190-job:3"
    assert (said["call_id"], said["status"], said["duration_s"]) == (CALL, "completed", 61)
    assert said["body"] == call_form(CallDuration="61")


async def test_webhook_not_signed_by_twilio_is_refused() -> None:
    form = call_form()
    async with listening() as rig:
        wrong = await twilio_posts(rig, form, token="f" * 32)
        elsewhere = await twilio_posts(rig, form, signed_for="https://elsewhere.example.org")
        bare = await rig.http.post("/t/hooks/twilio", data=form)
    assert [one.status_code for one in (wrong, elsewhere, bare)] == [401, 401, 401]


async def test_signature_covers_the_public_url() -> None:
    async with listening(public_url=PUBLIC) as rig:
        right = await twilio_posts(rig, call_form(), signed_for=PUBLIC)
        wrong = await twilio_posts(rig, call_form())
    assert (right.status_code, wrong.status_code) == (200, 401)


async def test_unconfigured_provider_is_not_found() -> None:
    async with listening() as rig:
        reply = await rig.http.post("/t/hooks/nobody", data=call_form())
    assert reply.status_code == 404


async def test_webhook_signed_by_vonage_is_accepted() -> None:
    body = vonage_said("completed", duration="12", price="0.01", network=None)
    async with listening() as rig:
        reply = await vonage_posts(rig, body, signed(body))
        # The digest may be that of the same object without whitespace.
        spread = json.dumps(json.loads(body), indent=1).encode()
        again = await vonage_posts(rig, spread, signed(body))
    assert (reply.status_code, again.status_code) == (200, 200), reply.text
    said = reply.json()
    assert (said["provider"], said["call_id"], said["ref"]) == ("vonage", UUID, "0190-job:3")
    assert (said["status"], said["duration_s"]) == ("completed", 12)
    assert (said["body"]["price"], said["body"]["network"]) == ("0.01", "null")
    assert said["event"] == again.json()["event"]


async def test_webhook_with_a_deviating_vonage_signature_is_refused() -> None:
    body, now = vonage_said(), Timing().wall_at() // 1000
    unsigned = jwt.encode({"iat": now, "payload_hash": "x"}, None, algorithm="none")
    no_hash = jwt.encode({"iat": now}, SECRET, algorithm="HS256")
    other = jwt.encode(
        {"iat": now, "payload_hash": sha256(body).hexdigest()}, SECRET * 2, algorithm="HS512"
    )
    refused = [
        None,
        "",
        "Bearer",
        "Bearer x.y.z",
        f"Basic {signed(body)[7:]}",
        f"Digest {signed(body)[7:]}",
        f"Bearer {unsigned}",
        f"Bearer {no_hash}",
        f"Bearer {other}",
        signed(body, secret=SECRET[::-1]),
        signed(vonage_said("completed")),
        signed(body, at=now - 301),
        signed(body, at=now + 3_600),
        signed(body, payload_hash=["x"]),
        signed(body, at=0),
    ]
    async with listening() as rig:
        for authorization in refused:
            reply = await vonage_posts(rig, body, authorization)
            assert reply.status_code == 401, authorization
        assert (await vonage_posts(rig, body, signed(body, at=now + 3))).status_code == 200


async def test_no_vonage_webhook_is_accepted_without_a_signature_secret() -> None:
    telephony = Telephony({"vonage": vonage("http://127.0.0.1:1")}, {})
    body = vonage_said()
    async with serving(systems=[Listening(telephony)]) as rig:
        reply = await vonage_posts(rig, body, signed(body))
    await telephony.close()
    assert reply.status_code == 401
    assert "signature_secret" in reply.text


def hook(body: bytes | Mapping[str, str], query: str = "?ref=j%3A1") -> HookRequest:
    is_form = not isinstance(body, bytes)
    kind = "application/x-www-form-urlencoded" if is_form else "application/json"
    return HookRequest(
        method="POST",
        url=f"https://headway.test/hooks{query}",
        headers=(("content-type", kind),),
        body=body if isinstance(body, bytes) else str(httpx.QueryParams(body)).encode(),
    )


TWILIO = {
    "queued": CallStatus.QUEUED,
    "initiated": CallStatus.QUEUED,
    "ringing": CallStatus.RINGING,
    "in-progress": CallStatus.IN_PROGRESS,
    "answered": CallStatus.IN_PROGRESS,
    "completed": CallStatus.COMPLETED,
    "busy": CallStatus.BUSY,
    "no-answer": CallStatus.NO_ANSWER,
    "failed": CallStatus.FAILED,
    "canceled": CallStatus.CANCELED,
}
VONAGE = {
    "started": CallStatus.QUEUED,
    "ringing": CallStatus.RINGING,
    "answered": CallStatus.IN_PROGRESS,
    "machine": CallStatus.IN_PROGRESS,
    "completed": CallStatus.COMPLETED,
    "busy": CallStatus.BUSY,
    "timeout": CallStatus.NO_ANSWER,
    "unanswered": CallStatus.NO_ANSWER,
    "failed": CallStatus.FAILED,
    "rejected": CallStatus.FAILED,
    "cancelled": CallStatus.CANCELED,
}


async def test_each_provider_status_is_mapped_to_one_of_ours() -> None:
    account, application = twilio("http://127.0.0.1:1"), vonage("http://127.0.0.1:1")
    for said, status in TWILIO.items():
        event = account.read_status(hook(call_form(said, ErrorCode="31005", CallDuration="7")))
        assert event is not None
        assert event.duration_s == (7 if status.ended else None)
        assert (event.status, event.ref, event.reason) == (status, "j:1", "error 31005")
    for said, status in VONAGE.items():
        other = application.read_status(hook(vonage_said(said, detail="why")))
        assert other is not None
        assert (other.status, other.ref, other.reason) == (status, "j:1", "why")
    for request, provider in [
        (hook(call_form("dreaming")), account),
        (hook(call_form(CallSid="CA1")), account),
        (hook(call_form(CallSid=f"{CALL}CallStatus")), account),
        (hook(vonage_said("dreaming")), application),
        (hook(vonage_said(uuid=None)), application),
        (hook(b"[]"), application),
    ]:
        with pytest.raises(InvalidValue):
            provider.read_status(request)
    for nothing, provider in [
        (hook({"MessageSid": MESSAGE, "MessageStatus": "sent"}), account),
        (hook(b"{}"), account),
        (hook({}), account),
        (hook(vonage_said("transfer")), application),
    ]:
        assert provider.read_status(nothing) is None
    await account.close()
    await application.close()


@pytest.mark.parametrize("said", [["completed"], {"is": "completed"}, True, 1, ""])
async def test_unknown_status_is_not_understood(said: object) -> None:
    application = vonage("http://127.0.0.1:1")
    body = json.dumps({"uuid": UUID, "status": said}).encode()
    with pytest.raises(InvalidValue, match="the call's status is"):
        application.read_status(hook(body))
    await application.close()


async def test_number_of_any_length_is_no_error() -> None:
    account = twilio("http://127.0.0.1:1")
    for said, seconds in (("9" * 9, 999_999_999), ("9" * 10, None), ("9" * 5_000, None)):
        event = account.read_status(hook(call_form(CallDuration=said)))
        assert event is not None
        assert event.duration_s == seconds
    await account.close()


async def test_repeated_event_has_the_same_id_and_another_event_another() -> None:
    account, application = twilio("http://127.0.0.1:1"), vonage("http://127.0.0.1:1")
    forms = [call_form(), call_form("busy"), call_form(SequenceNumber="4")]
    events = [account.read_status(hook(form)) for form in [*forms, *forms]]
    bodies = [vonage_said(), vonage_said("busy"), vonage_said(timestamp="2027-01-15T08:00:04Z")]
    others = [application.read_status(hook(body)) for body in [*bodies, *bodies]]
    for read in (events, others):
        ids = [one.event for one in read if one is not None]
        assert ids[:3] == ids[3:]
        assert len(set(ids)) == 3
    await account.close()
    await application.close()


async def test_keys_and_silence_are_read() -> None:
    account, application = twilio("http://127.0.0.1:1"), vonage("http://127.0.0.1:1")
    gathered = {"CallSid": CALL, "CallStatus": "in-progress", "From": FROM, "To": TO}
    for said, digits in [({"Digits": "1"}, "1"), ({"Digits": ""}, ""), ({}, "")]:
        pressed = account.read_pressed(hook({**gathered, **said}))
        event = f"twilio:{CALL}:pressed:{digits}"
        assert pressed == Pressed(call_id=CALL, ref="j:1", digits=digits, event=event)
    for keys, digits in [({"digits": "12", "timed_out": False}, "12"), ({"digits": None}, "")]:
        body = json.dumps({"uuid": UUID, "dtmf": keys, "status": "answered"}).encode()
        pressed = application.read_pressed(hook(body))
        event = f"vonage:{UUID}:pressed:{digits}"
        assert pressed == Pressed(call_id=UUID, ref="j:1", digits=digits, event=event)
        assert application.read_status(hook(body)) is None
    assert account.read_status(hook({**gathered, "Digits": "1"})) is None
    assert account.read_pressed(hook(call_form())) is None
    assert application.read_pressed(hook(vonage_said())) is None
    await account.close()
    await application.close()


async def test_messages_and_replies_of_people_are_read() -> None:
    account = twilio("http://127.0.0.1:1")
    stands = {"sent": TextStatus.SENT, "delivered": TextStatus.DELIVERED,
              "undelivered": TextStatus.UNDELIVERED, "failed": TextStatus.FAILED,
              "queued": TextStatus.QUEUED}  # fmt: skip
    for said, status in stands.items():
        form = {"MessageSid": MESSAGE, "MessageStatus": said, "From": FROM, "ErrorCode": "30003"}
        event = account.read_text_status(hook(form))
        assert event is not None
        assert (event.message_id, event.ref, event.status) == (MESSAGE, "j:1", status)
        assert event.reason == "error 30003"
        assert account.read_inbound(hook(form)) is None
        # A report that repeats our own text is no answer to it.
        assert account.read_inbound(hook({**form, "Body": "STOP", "From": FROM})) is None
    wrote = {"MessageSid": MESSAGE, "SmsStatus": "received", "From": TO, "To": FROM, "Body": " Yes"}
    inbound = account.read_inbound(hook(wrote, ""))
    assert inbound is not None
    assert (inbound.from_, inbound.to, inbound.text) == (TO, FROM, " Yes")
    assert account.read_text_status(hook(wrote)) is None
    assert account.reply_text(None)[0].endswith(b"<Response />")
    assert b"<Message>1 &lt; 2</Message>" in account.reply_text("1 < 2")[0]
    await account.close()


async def test_reply_is_in_the_providers_language() -> None:
    account, application = twilio("http://127.0.0.1:1"), vonage("http://127.0.0.1:1")
    spoken = account.speak(Say(text="It is yours"))
    assert spoken.media_type == "application/xml"
    assert b"<Response><Say>It is yours</Say></Response>" in spoken.body
    body, kind = application.speak(Say(text="It is yours"))
    assert (json.loads(body), kind) == (
        [{"action": "talk", "text": "It is yours"}],
        "application/json",
    )
    asked = application.speak(Ask(text="Press 1", answer_url="https://h.test/a"))
    assert [one["action"] for one in json.loads(asked.body)] == ["talk", "input"]
    await account.close()
    await application.close()
