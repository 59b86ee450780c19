from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headway.systems.notifications.sender import (
    Accepted,
    Limited,
    Message,
    Refused,
    Unavailable,
    Unsure,
)
from headway.systems.notifications.senders import Sms
from tests.systems.notifications.senders.messages import message
from tests.systems.telephony.accounts import FROM, MESSAGE, TO, twilio, twilio_error
from tests.systems.telephony.carrier_rig import carrying
from tests.systems.telephony.raw_server import RawServer, cuts, hangs_up, raw_server, says

BASE = "https://headway.test"


@asynccontextmanager
async def sender(url: str, base_url: str = BASE, **more: Any) -> AsyncIterator[Sms]:
    account = twilio(url, **more)
    try:
        yield Sms(account, FROM, lambda: base_url)
    finally:
        await account.close()


def sms(to: str = TO) -> Message:
    return message(to, channel="sms")


async def test_text_reaches_a_phone_of_the_simulated_carrier():
    async with carrying() as carrier:
        account = {"account_sid": carrier.account_sid, "auth_token": carrier.auth_token}
        async with sender(carrier.url, **account) as one:
            outcome = await one.send(sms())
        assert isinstance(outcome, Accepted)
        text = carrier.network.ledger.texts[outcome.provider_id or ""]
    assert (text.plan.to, text.plan.from_, text.plan.text) == (TO, FROM, "It comes today.")


async def test_provider_is_given_the_url_for_delivery_reports():
    async with raw_server(says(201, {"sid": MESSAGE})) as end:
        async with sender(end.url) as one:
            assert await one.send(sms()) == Accepted(MESSAGE)
        async with sender(end.url, base_url="") as one:
            await one.send(sms())
    first, second = end.seen
    path = f"{BASE}/notifications/hooks/twilio/status"
    assert first.form["StatusCallback"] == [f"{path}?ref={sms().id}"]
    assert "StatusCallback" not in second.form


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, 21211, Refused("", gone=True)),
        (400, 21614, Refused("", gone=True)),
        (400, 21610, Refused("")),
        (400, 21408, Refused("")),
        (400, 21606, Refused("")),
        (400, 21611, Limited("", None)),
        (429, 20429, Limited("", None)),
        (401, 20003, Unavailable("")),
        (403, 10001, Unavailable("")),
    ],
)
async def test_refusal_by_twilio_is_the_outcome(status: int, code: int, expected: Any):
    async with raw_server(says(status, twilio_error(status, code))) as end, sender(end.url) as one:
        outcome = await one.send(sms())
    assert type(outcome) is type(expected)
    assert getattr(outcome, "gone", None) == getattr(expected, "gone", None)
    assert f"of {code}" in outcome.reason  # type: ignore[union-attr]
    assert len(end.seen) == 1


async def test_status_429_says_when_to_retry():
    async with raw_server(says(429, Retry_After="9")) as end, sender(end.url) as one:
        outcome = await one.send(sms())
    assert isinstance(outcome, Limited)
    assert outcome.retry_after_ms == 9_000


@pytest.mark.parametrize("act", [says(500), says(503), cuts, hangs_up])
async def test_unclear_twilio_reply_is_uncertain_and_sent_once(act: Any):
    async with raw_server(act) as end, sender(end.url) as one:
        assert isinstance(await one.send(sms()), Unsure)
    assert len(end.seen) == 1


async def test_unreachable_provider_was_sent_nothing():
    async with raw_server(hangs_up) as end:
        pass
    async with sender(end.url) as one:
        assert isinstance(await one.send(sms()), Unavailable)


@pytest.mark.parametrize("to", ["", "0123", "+1 415", "+14155550100\r\n", "whatsapp:+14155550100"])
async def test_invalid_number_is_refused_unsent(to: str):
    end = RawServer(url="http://127.0.0.1:1")
    async with sender(end.url) as one:
        assert await one.send(sms(to)) == Refused("the number is not in E.164")
