"""Calls and messages through a carrier that speaks Twilio's API, from order to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.runtime.timing import REAL
from headway.server.hooks.request import HookRequest
from headway.server.listener import ListenAddress, Listener
from headway.systems.telephony.texts import TextEvent, TextOrder
from headway.systems.telephony.twilio import Account, make
from headway.systems.telephony.voice import (
    Ask,
    CallEvent,
    CallOrder,
    CallStatus,
    NotFound,
    Pressed,
    Say,
    Sought,
)
from tests.systems.telephony.carrier_rig import CarrierRig, carrying

TO, FROM = "+15550001111", "+15559990000"
Received = CallEvent | Pressed | TextEvent


class CallbackRecorder:
    """An application that verifies and reads webhooks with the account, and answers key presses."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.url = ""
        self.received: list[Received] = []

    async def receive(self, request: Request) -> Response:
        came = HookRequest(
            method=request.method,
            url=str(request.url),
            headers=tuple(request.headers.items()),
            body=await request.body(),
        )
        self.account.verify(came, REAL.wall_at())
        if request.url.path == "/answer":
            pressed = self.account.read_pressed(came)
            assert pressed is not None
            self.received.append(pressed)
            body, kind = self.account.speak(Say(text="Thank you"))
            return Response(body, media_type=kind)
        event = self.account.read_status(came) or self.account.read_text_status(came)
        assert event is not None
        self.received.append(event)
        return Response(status_code=204)


@asynccontextmanager
async def world(**settings: Any) -> AsyncGenerator[tuple[CarrierRig, Account, CallbackRecorder]]:
    async with carrying(**settings) as carrier:
        account = make(carrier.settings(timeout="20s"))
        app = CallbackRecorder(account)
        listener = Listener(
            Starlette(routes=[Route("/{path:path}", app.receive, methods=["POST"])]),
            ListenAddress(port=0),
        )
        app.url = listener.url
        running = asyncio.create_task(listener.run())
        await listener.answers()
        yield carrier, account, app
        await account.close()
        listener.stop()
        await running


def order(app: CallbackRecorder, script: Say | Ask | None = None, ref: str = "job:1") -> CallOrder:
    return CallOrder(
        ref=ref,
        to=TO,
        from_=FROM,
        script=script or Say(text="Good day"),
        status_url=f"{app.url}/status?ref={ref.replace(':', '%3A')}",
    )


def sought(since: int, *, call_id: str | None = None, others: tuple[str, ...] = ()) -> Sought:
    return Sought(ref="job:1", to=TO, from_=FROM, since=since, call_id=call_id, others=others)


async def test_call_is_placed_followed_to_its_end_and_known_afterwards() -> None:
    since = REAL.wall_at()
    async with world(talk="42s") as (carrier, account, app):
        made = await account.dial(order(app))
        await carrier.network.idle()
        by_id = await account.look_up(sought(since, call_id=made.call_id))
        by_numbers = await account.look_up(sought(since))
        of_others = await account.look_up(sought(since, others=(made.call_id,)))
    events = [one for one in app.received if isinstance(one, CallEvent)]
    assert [one.status for one in events] == [
        CallStatus.QUEUED,
        CallStatus.RINGING,
        CallStatus.IN_PROGRESS,
        CallStatus.COMPLETED,
    ]
    assert {(one.call_id, one.ref) for one in events} == {(made.call_id, "job:1")}
    assert len({one.event for one in events}) == 4
    assert events[-1].duration_s == 42
    for found in (by_id, by_numbers):
        assert isinstance(found, CallEvent)
        assert (found.call_id, found.status) == (made.call_id, CallStatus.COMPLETED)
        assert found.duration_s == 42
    assert of_others is NotFound.NO_CALL


@pytest.mark.parametrize(("answers", "digits"), [("accept", "1"), ("decline", "2"), ("silent", "")])
async def test_question_is_asked_and_its_answer_reported_once(answers: str, digits: str) -> None:
    async with world() as (carrier, account, app):
        carrier.person(TO, answers)
        ask = Ask(text="Press 1", answer_url=f"{app.url}/answer?ref=job%3A1", wait_s=3)
        await account.dial(order(app, ask))
        await carrier.network.idle()
    pressed = [one for one in app.received if isinstance(one, Pressed)]
    assert [(one.digits, one.ref) for one in pressed] == [(digits, "job:1")]


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ("busy", CallStatus.BUSY),
        ("ignore", CallStatus.NO_ANSWER),
        ("fails", CallStatus.FAILED),
        ("talks", CallStatus.COMPLETED),
    ],
)
async def test_each_end_of_a_call_is_reported(answers: str, status: CallStatus) -> None:
    async with world() as (carrier, account, app):
        carrier.person(TO, answers)
        await account.dial(order(app))
        await carrier.network.idle()
    last = app.received[-1]
    assert isinstance(last, CallEvent)
    assert last.status is status


async def test_refused_call_was_never_placed_and_an_uncertain_one_is_found_again() -> None:
    since = REAL.wall_at()
    async with world() as (carrier, account, app):
        carrier.person(TO, "refused", "too_many", "broken", "cut")
        for concerns in ("callee", "provider"):
            with pytest.raises(ProviderRefused) as refused:
                await account.dial(order(app))
            assert refused.value.concerns == concerns
        with pytest.raises(ProviderUnsure):
            await account.dial(order(app))
        assert await account.look_up(sought(since)) is NotFound.NO_CALL
        with pytest.raises(ProviderUnsure):
            await account.dial(order(app))
        found = await account.look_up(sought(since))
        [call] = carrier.network.ledger.calls.values()
        await carrier.network.idle()
    assert isinstance(found, CallEvent)
    assert found.call_id == call.sid


async def test_call_is_hung_up_while_it_rings_and_while_it_is_answered() -> None:
    async with world(speed=1, talk="100s") as (carrier, account, app):
        carrier.person(TO, "ignore", "talks", ring_s=0)
        ringing = await account.dial(order(app))
        await account.hang_up(ringing.call_id)
        talking = await account.dial(order(app, ref="job:2"))
        await carrier.until(
            lambda one: one.ledger.calls[talking.call_id].status == "in-progress", "answered"
        )
        await account.hang_up(talking.call_id)
        await account.hang_up(talking.call_id)
        ends = [await account.look_up(sought(0, call_id=one.call_id)) for one in (ringing, talking)]
    assert [one.status for one in ends if isinstance(one, CallEvent)] == [
        CallStatus.CANCELED,
        CallStatus.COMPLETED,
    ]


async def test_wrong_token_is_a_refusal_of_the_provider() -> None:
    async with carrying() as carrier:
        account = make(carrier.settings(auth_token="wrong" * 5))
        with pytest.raises(ProviderRefused) as refused:
            await account.send(TextOrder(ref="j:1", to=TO, from_=FROM, text="x"))
        await account.close()
    assert (refused.value.concerns, refused.value.provider_code) == ("provider", "20003")


async def test_message_is_sent_and_followed_to_its_delivery() -> None:
    async with world() as (carrier, account, app):
        text = TextOrder(
            ref="job:1", to=TO, from_=FROM, text="Hello", status_url=f"{app.url}/t?ref=job%3A1"
        )
        message_id = await account.send(text)
        await carrier.network.idle()
    events = [one for one in app.received if isinstance(one, TextEvent)]
    assert {(one.message_id, one.ref) for one in events} == {(message_id, "job:1")}
    assert events[-1].status == "delivered"
