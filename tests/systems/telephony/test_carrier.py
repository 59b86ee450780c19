"""The carrier that speaks Twilio's API, used by Twilio's own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest
from requests.exceptions import ChunkedEncodingError, Timeout
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from twilio.base.exceptions import TwilioRestException
from twilio.http.http_client import TwilioHttpClient
from twilio.request_validator import RequestValidator
from twilio.rest import Client

from headway.server.listener import ListenAddress, Listener
from tests.systems.telephony.carrier_rig import CarrierRig, carrying

TO, FROM = "+15550001111", "+15559990000"
SAY = "<Response><Say>hello</Say></Response>"


class Towards(TwilioHttpClient):
    """Twilio's transport, redirected to another URL."""

    def __init__(self, url: str, timeout: float) -> None:
        super().__init__(timeout=timeout)
        self.url = url

    def request(self, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        there = url.replace("https://api.twilio.com", self.url)
        return super().request(method, there, *args, **kwargs)


def client_of(
    carrier: CarrierRig, timeout: float = 10, keyed: tuple[str, str] | None = None
) -> Client:
    account = carrier.account_sid
    name, secret = keyed or (account, carrier.auth_token)
    transport = Towards(carrier.url, timeout)
    return Client(name or account, secret, account_sid=account, http_client=transport)


async def calling(carrier: CarrierRig, **fields: Any) -> Any:
    fields = {"to": TO, "from_": FROM, "twiml": SAY, **fields}
    fields = {name: value for name, value in fields.items() if value is not None}
    return await asyncio.to_thread(client_of(carrier).calls.create, **fields)


class CallbackRecorder:
    """An application that receives webhooks and verifies their Twilio signature."""

    def __init__(self) -> None:
        self.url = ""
        self.callbacks: list[dict[str, str]] = []
        self.answers: dict[str, str] = {}
        self.statuses: list[int] = []
        self.validator = RequestValidator("")

    async def record(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode(), keep_blank_values=True))
        signature = request.headers["x-twilio-signature"]
        assert self.validator.validate(str(request.url), form, signature)
        status = self.statuses.pop(0) if self.statuses else 200
        self.callbacks.append({"path": request.url.path, "query": request.url.query, **form})
        said = self.answers.get(request.url.path, "")
        return Response(said, status, media_type="application/xml")

    def of(self, path: str) -> list[dict[str, str]]:
        return [one for one in self.callbacks if one["path"] == path]


@asynccontextmanager
async def recording_callbacks(carrier: CarrierRig) -> AsyncGenerator[CallbackRecorder]:
    made = CallbackRecorder()
    made.validator = RequestValidator(carrier.auth_token)
    routes = [Route("/{path:path}", made.record, methods=["GET", "POST"])]
    listener = Listener(Starlette(routes=routes), ListenAddress(port=0))
    made.url = listener.url
    running = asyncio.create_task(listener.run())
    await listener.answers()
    try:
        yield made
    finally:
        listener.stop()
        await running


async def test_call_goes_through_all_its_statuses_and_each_is_reported_signed() -> None:
    async with carrying(talk="42s") as carrier, recording_callbacks(carrier) as app:
        call = await calling(
            carrier,
            status_callback=f"{app.url}/status?ref=job:1",
            status_callback_event=["initiated", "ringing", "answered", "completed"],
        )
        await carrier.network.idle()
        told = app.of("/status")
        ended = await asyncio.to_thread(client_of(carrier).calls(call.sid).fetch)

    assert call.sid.startswith("CA")
    assert call.status == "queued"
    assert [one["CallStatus"] for one in told] == [
        "initiated", "ringing", "in-progress", "completed",
    ]  # fmt: skip
    assert [one["SequenceNumber"] for one in told] == ["0", "1", "2", "3"]
    assert {one["CallbackSource"] for one in told} == {"call-progress-events"}
    assert {(one["To"], one["From"], one["CallSid"]) for one in told} == {(TO, FROM, call.sid)}
    assert {one["query"] for one in told} == {"ref=job:1"}
    assert told[-1]["CallDuration"] == "42"
    assert (ended.status, ended.duration) == ("completed", "42")
    assert carrier.network.ledger.by_ref("job:1").sid == call.sid


async def test_only_the_end_is_reported_unless_more_is_requested() -> None:
    async with carrying() as carrier, recording_callbacks(carrier) as app:
        await calling(carrier, status_callback=f"{app.url}/status")
        await carrier.network.idle()
        assert [one["CallStatus"] for one in app.callbacks] == ["completed"]


@pytest.mark.parametrize(
    ("answers", "status"),
    [("busy", "busy"), ("ignore", "no-answer"), ("fails", "failed"), ("hangs_up", "completed")],
)
async def test_outcome_of_a_call_is_what_the_person_does(answers: str, status: str) -> None:
    async with carrying() as carrier, recording_callbacks(carrier) as app:
        carrier.person(TO, answers)
        await calling(carrier, status_callback=f"{app.url}/status")
        await carrier.network.idle()
        assert [one["CallStatus"] for one in app.callbacks] == [status]


@pytest.mark.parametrize(("answers", "digits"), [("accept", "1"), ("decline", "2"), ("wrong", "9")])
async def test_pressed_keys_are_reported_and_the_reply_is_spoken(answers: str, digits: str) -> None:
    async with carrying() as carrier, recording_callbacks(carrier) as app:
        carrier.person(TO, answers)
        app.answers["/words"] = (
            '<Response><Gather numDigits="1" action="/keys?ref=job%3A1"><Say>Press</Say></Gather>'
            "</Response>"
        )
        app.answers["/keys"] = "<Response><Say>Thank you</Say></Response>"
        await calling(carrier, twiml=None, url=f"{app.url}/words")
        await carrier.network.idle()
        (call,) = carrier.network.ledger.calls.values()
        (keys,) = app.of("/keys")

    assert (keys["Digits"], keys["CallStatus"]) == (digits, "in-progress")
    assert keys["query"] == "ref=job%3A1"
    assert call.heard == ["Press", "Thank you"]
    assert call.problems == []


async def test_silence_is_reported_only_on_request() -> None:
    once = '<Gather action="/keys" timeout="5"{}><Say>Press</Say></Gather>'
    told = ' actionOnEmptyResult="true"'
    words = f"<Response>{once.format('')}{once.format(told)}</Response>"
    async with carrying() as carrier, recording_callbacks(carrier) as app:
        carrier.person(TO, "silent")
        app.answers["/words"] = words
        await calling(carrier, twiml=None, url=f"{app.url}/words")
        await carrier.network.idle()
        (call,) = carrier.network.ledger.calls.values()
        assert [one["Digits"] for one in app.of("/keys")] == [""]
        assert call.heard == ["Press", "Press"]


async def test_key_pressed_late_counts_for_the_second_prompt() -> None:
    once = '<Gather action="/keys" timeout="5"><Say>Press</Say></Gather>'
    async with carrying() as carrier, recording_callbacks(carrier) as app:
        carrier.person(TO, "accept", after_s=10)
        app.answers["/words"] = f"<Response>{once}{once}</Response>"
        await calling(carrier, twiml=None, url=f"{app.url}/words")
        await carrier.network.idle()
        (call,) = carrier.network.ledger.calls.values()
        assert call.pressed == ["1"]
        assert call.heard == ["Press", "Press"]


@pytest.mark.parametrize(
    "words",
    [
        "<Response>",
        "<Speak/>",
        "<Response><Sing/></Response>",
        '<Response><Pause length="-5"/></Response>',
        '<Response><Gather numDigits="-1"/></Response>',
        '<Response><Redirect method="Ü">http://localhost/</Redirect></Response>',
    ],
)
async def test_invalid_twiml_is_recorded_as_a_problem(words: str) -> None:
    async with carrying() as carrier:
        await calling(carrier, twiml=words)
        await carrier.network.idle()
        (call,) = carrier.network.ledger.calls.values()
        assert call.status == "completed"
        assert call.problems[0].startswith(("12100", "12200"))


async def test_invalid_url_is_recorded_as_a_problem_and_ends_the_call() -> None:
    async with carrying() as carrier, recording_callbacks(carrier) as app:
        app.answers["/words"] = "<Response><Redirect>http://[x</Redirect></Response>"
        await calling(carrier, twiml=None, url=f"{app.url}/words")
        await carrier.network.idle()
        (call,) = carrier.network.ledger.calls.values()
        assert call.status == "completed"
        assert call.problems == ["11100 'http://[x' is not a URL"]


async def test_failing_application_is_recorded_as_a_problem() -> None:
    async with carrying() as carrier, recording_callbacks(carrier) as app:
        app.statuses = [500]
        await calling(carrier, twiml=None, url=f"{app.url}/words")
        await carrier.network.idle()
        (call,) = carrier.network.ledger.calls.values()
        assert call.problems == [f"11200 {app.url}/words replied with 500"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"to": ""}, 21201),
        ({"to": "911"}, 21211),
        ({"from_": ""}, 21213),
        ({"from_": "Bob"}, 21212),
        ({"from_": "+15557777777"}, 21210),
        ({"twiml": None}, 21205),
        ({"twiml": None, "url": "ftp://x"}, 21205),
        ({"status_callback": "nowhere"}, 21609),
        ({"status_callback_event": ["sung"]}, 21626),
    ],
)
async def test_call_with_an_unusable_field_is_refused_as_twilio_refuses_it(
    fields: dict[str, Any], code: int
) -> None:
    async with carrying(numbers=[FROM]) as carrier:
        with pytest.raises(TwilioRestException) as refused:
            await calling(carrier, **fields)
        assert (refused.value.status, refused.value.code) == (400, code)
        assert not carrier.network.ledger.calls


async def test_field_unknown_to_twilio_is_refused() -> None:
    async with carrying() as carrier:
        reply = await carrier.http.post(
            f"/2010-04-01/Accounts/{carrier.account_sid}/Calls.json",
            data={"To": TO, "From": FROM, "Twiml": SAY, "StatusCalback": "x"},
            auth=(carrier.account_sid, carrier.auth_token),
        )
        assert (reply.status_code, reply.json()["code"]) == (400, 20001)
        assert reply.json()["more_info"].endswith("/20001")


async def test_reply_to_an_unauthenticated_caller_reveals_nothing() -> None:
    async with carrying() as carrier:
        client = client_of(carrier, keyed=("", "another one"))
        with pytest.raises(TwilioRestException) as refused:
            await asyncio.to_thread(client.calls("CA" + "0" * 32).fetch)
        assert (refused.value.status, refused.value.code) == (401, 20003)


async def test_api_key_authenticates_as_well_as_the_token() -> None:
    key = "SK" + "0" * 32
    async with carrying(api_keys={key: "a secret"}) as carrier:
        client = client_of(carrier, keyed=(key, "a secret"))
        assert await asyncio.to_thread(client.calls.list) == []


@pytest.mark.parametrize(
    ("answers", "status", "code"),
    [("refused", 400, 21217), ("too_many", 429, 20429), ("broken", 500, 20500)],
)
async def test_refused_call_is_not_made(answers: str, status: int, code: int) -> None:
    async with carrying() as carrier:
        carrier.person(TO, answers, "talks")
        with pytest.raises(TwilioRestException) as refused:
            await calling(carrier)
        assert (refused.value.status, refused.value.code) == (status, code)
        assert not carrier.network.ledger.calls
        await calling(carrier)
        assert len(carrier.network.ledger.calls) == 1


async def test_missing_reply_belongs_to_a_call_that_was_made() -> None:
    async with carrying() as carrier, recording_callbacks(carrier) as app:
        carrier.person(TO, "unsure")
        create = client_of(carrier, timeout=0.5).calls.create
        with pytest.raises(Timeout):
            await asyncio.to_thread(
                create, to=TO, from_=FROM, twiml=SAY, status_callback=f"{app.url}/s?ref=a:1"
            )
        await carrier.network.idle()
        assert [one["CallStatus"] for one in app.callbacks] == ["completed"]


async def test_truncated_reply_belongs_to_a_call_that_was_made() -> None:
    async with carrying() as carrier:
        carrier.person(TO, "cut")
        with pytest.raises(ChunkedEncodingError):
            await calling(carrier)
        await carrier.network.idle()
        assert [one.status for one in carrier.network.ledger.calls.values()] == ["completed"]


async def test_unreachable_provider_does_nothing() -> None:
    async with carrying(away=True) as carrier:
        with pytest.raises(TwilioRestException) as refused:
            await calling(carrier)
        assert refused.value.status == 503
        carrier.network.change({"away": False})
        await calling(carrier)


async def test_calls_are_listed_in_pages_by_number_status_and_time() -> None:
    async with carrying(talk="30m", speed=1) as carrier:
        for n in range(7):
            await calling(carrier, to=f"+1555000000{n}")
        listed = client_of(carrier).calls.list
        now = datetime.now(UTC)  # noqa: TID251  (the client's own argument)
        await carrier.until(
            lambda network: all(one.status != "queued" for one in network.ledger.calls.values())
        )

        async def numbers(**asked: Any) -> list[str]:
            return [one.to[-1] for one in await asyncio.to_thread(listed, **asked)]

        assert await numbers(page_size=3) == ["6", "5", "4", "3", "2", "1", "0"]
        assert await numbers(to="+15550000004") == ["4"]
        assert await numbers(from_="+15550000004") == []
        assert await numbers(status="completed") == []
        assert len(await numbers(start_time_after=now - timedelta(seconds=60))) == 7
        assert await numbers(start_time_after=now + timedelta(seconds=60)) == []
        assert await numbers(start_time_before=now - timedelta(seconds=60)) == []
        assert await numbers(to="+15550000004", start_time_after=now - timedelta(days=1)) == ["4"]


async def test_call_that_was_never_made_is_not_found() -> None:
    async with carrying() as carrier:
        for ask in ("fetch", "update"):
            more = {"status": "completed"} if ask == "update" else {}
            context = client_of(carrier).calls("CA" + "0" * 32)
            with pytest.raises(TwilioRestException) as refused:
                await asyncio.to_thread(getattr(context, ask), **more)
            assert (refused.value.status, refused.value.code) == (404, 20404)


@pytest.mark.parametrize("status", ["canceled", "completed"])
async def test_ended_ringing_call_is_canceled(status: str) -> None:
    async with carrying(ring="1h") as carrier, recording_callbacks(carrier) as app:
        call = await calling(carrier, timeout=600, status_callback=f"{app.url}/s")
        await carrier.until(lambda network: network.ledger.calls[call.sid].status == "ringing")
        ended = await asyncio.to_thread(client_of(carrier).calls(call.sid).update, status=status)
        assert ended.status == "canceled"
        await carrier.network.idle()
        assert [one["CallStatus"] for one in app.callbacks] == ["canceled"]


async def test_ended_answered_call_is_completed_and_not_canceled() -> None:
    async with carrying(talk="24h", ring="1s") as carrier:
        call = await calling(carrier)
        await carrier.until(lambda network: network.ledger.calls[call.sid].answered_at)
        update = client_of(carrier).calls(call.sid).update
        assert (await asyncio.to_thread(update, status="canceled")).status == "in-progress"
        assert (await asyncio.to_thread(update, status="completed")).status == "completed"
        with pytest.raises(TwilioRestException) as refused:
            await asyncio.to_thread(update, status="completed")
        assert refused.value.code == 21220


async def test_call_can_be_redirected_to_another_script() -> None:
    async with carrying(talk="24h", ring="1s") as carrier:
        call = await calling(carrier)
        await carrier.until(lambda network: network.ledger.calls[call.sid].answered_at)
        update = client_of(carrier).calls(call.sid).update
        other = "<Response><Say>It is taken.</Say><Hangup/></Response>"
        await asyncio.to_thread(update, twiml=other)
        await carrier.network.idle()
        made = carrier.network.ledger.calls[call.sid]
        assert made.heard == ["hello", "It is taken."]
        assert made.status == "completed"


async def test_message_is_sent_delivered_and_answered() -> None:
    async with carrying() as carrier, recording_callbacks(carrier) as app:
        client = client_of(carrier)
        app.answers["/texts"] = "<Response><Message>You have it.</Message></Response>"
        await asyncio.to_thread(
            client.incoming_phone_numbers.create, phone_number=FROM, sms_url=f"{app.url}/texts"
        )
        carrier.person(TO, "accept")
        sent = await asyncio.to_thread(
            client.messages.create,
            to=TO, from_=FROM, body="A job?", status_callback=f"{app.url}/s?ref=a:1",
        )  # fmt: skip
        await carrier.network.idle()
        (inbound,) = app.of("/texts")
        listed = await asyncio.to_thread(client.messages.list)
        one = await asyncio.to_thread(client.messages(sent.sid).fetch)

    assert [each["MessageStatus"] for each in app.of("/s")] == ["sent", "delivered"]
    assert (inbound["From"], inbound["To"], inbound["Body"]) == (TO, FROM, "1")
    assert [each.body for each in listed] == ["You have it.", "1", "A job?"]
    assert one.status == "delivered"


async def test_undelivered_message_is_reported_with_its_reason() -> None:
    async with carrying(undelivered=1.0) as carrier, recording_callbacks(carrier) as app:
        send = client_of(carrier).messages.create
        await asyncio.to_thread(
            send, to=TO, from_=FROM, body="A job?", status_callback=f"{app.url}/s"
        )
        await carrier.network.idle()
        assert [(one["MessageStatus"], one.get("ErrorCode")) for one in app.callbacks] == [
            ("sent", None), ("undelivered", "30003"),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"to": ""}, 21604), ({"body": ""}, 21602), ({"body": "x" * 1601}, 21617),
     ({"from_": "+15557777777"}, 21606)],
)  # fmt: skip
async def test_message_with_an_unusable_field_is_refused(fields: dict[str, str], code: int) -> None:
    async with carrying(numbers=[FROM]) as carrier:
        send = client_of(carrier).messages.create
        with pytest.raises(TwilioRestException) as refused:
            await asyncio.to_thread(send, **{"to": TO, "from_": FROM, "body": "A job?", **fields})
        assert refused.value.code == code
        assert not carrier.network.ledger.texts


async def test_webhooks_are_lost_late_and_duplicated_as_configured() -> None:
    events = ["initiated", "ringing", "answered", "completed"]
    for fault, statuses in (
        ("post_lost", []),
        ("post_twice", ["initiated", "ringing", "in-progress", "completed"] * 2),
        ("post_disordered", ["completed", "initiated", "ringing", "in-progress"]),
    ):
        async with carrying(**{fault: 1.0}) as carrier, recording_callbacks(carrier) as app:
            await calling(carrier, status_callback=f"{app.url}/s", status_callback_event=events)
            await carrier.network.idle()
            told = [one["CallStatus"] for one in app.callbacks]
            assert sorted(told) == sorted(statuses)
            if fault == "post_disordered":
                assert told == statuses
            assert carrier.network.ledger.posts[fault.removeprefix("post_")]


async def test_refused_webhook_is_retried_only_on_request() -> None:
    for tries, count in ((1, 1), (3, 2)):
        async with carrying(post_tries=tries) as carrier, recording_callbacks(carrier) as app:
            app.statuses = [503]
            await calling(carrier, status_callback=f"{app.url}/s")
            await carrier.network.idle()
            assert len(app.callbacks) == count


async def test_carrier_shows_its_ledger_and_accepts_people_and_faults_at_run_time() -> None:
    async with carrying() as carrier:
        told = await carrier.http.post(f"/_people/{TO}", json={"answers": ["busy", "talks"]})
        assert told.status_code == 200
        for n in (1, 2, 2):
            await calling(carrier, status_callback=f"http://127.0.0.1:9/s?ref=job:{n}")
        await carrier.network.idle()
        ledger = (await carrier.http.get("/_calls")).json()
        assert [one["status"] for one in ledger["calls"]] == ["busy", "completed", "completed"]
        assert ledger["twice"] == {"job:2": 2}
        assert ledger["peaks"][FROM] >= 1
        assert ledger["webhooks"] == {"undelivered": 3}
        assert len((await carrier.http.get("/_calls?ref=job:1")).json()["calls"]) == 1

        changed = await carrier.http.post("/_faults", json={"busy": 1.0})
        assert (changed.json()["busy"], changed.json()["answer"]) == (1.0, None)
        await calling(carrier, to="+15550002222")
        await carrier.network.idle()
        assert list(carrier.network.ledger.calls.values())[-1].status == "busy"


@pytest.mark.parametrize(
    ("path", "body"),
    [("/_faults", {"bussy": 1}), ("/_faults", {"busy": 0.9, "failed": 0.9}),
     ("/_people/+15550001111", {"answers": "sings"}), ("/_texts", {"from": "+1555"})],
)  # fmt: skip
async def test_input_of_the_carrier_must_be_valid(path: str, body: dict[str, Any]) -> None:
    async with carrying() as carrier:
        reply = await carrier.http.post(path, json=body)
        assert (reply.status_code, reply.json()["code"]) == (400, 20001)


async def test_carrier_does_not_answer_under_another_name() -> None:
    async with carrying() as carrier:
        reply = await carrier.http.get("/_calls", headers={"Host": "carrier.example.org"})
        assert reply.status_code == 400
