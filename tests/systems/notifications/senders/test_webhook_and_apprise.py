from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Official

from headway.runtime.timing import REAL
from headway.systems.notifications.sender import (
    Accepted,
    Refused,
    Unavailable,
    Unsure,
)
from headway.systems.notifications.senders import AppriseTable, AppriseUrl, Webhook, WebhookTable
from headway.systems.pre_send_check import checking
from tests.systems.notifications.senders.messages import message
from tests.systems.telephony.raw_server import babbles, cuts_head, hangs, hangs_up, raw_server, says

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@asynccontextmanager
async def webhook(*, private: bool = True) -> AsyncIterator[Webhook]:
    made = Webhook(WebhookTable(keys=(KEY,), private=private), REAL)
    try:
        yield made
    finally:
        await made.close()


async def test_webhook_is_signed_as_the_official_package_verifies_it():
    async with raw_server(says(204)) as end, webhook() as one:
        sent = message(f"{end.url}/hook", channel="webhook")
        assert await one.send(sent) == Accepted(None)
    (seen,) = end.seen
    assert Official(KEY).verify(seen.body, seen.headers) == {
        "type": "notification",
        "data": {
            "id": sent.id,
            "category": "delivery",
            "priority": "normal",
            "title": "Your parcel",
            "text": "It comes today.",
            "data": {"parcel": 7},
        },
    }
    assert seen.headers["webhook-id"] == sent.id


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (says(410), Refused("the webhook answered 410", gone=True)),
        (says(404), Refused("the webhook answered 404")),
        (says(302, Location="http://127.0.0.1:1/"), Refused("the webhook answered 302")),
        (says(429, Retry_After="5"), Unavailable("the webhook answered 429", 5_000)),
        (says(408), Unavailable("the webhook answered 408")),
        (says(500), Unavailable("the webhook answered 500")),
        (says(503), Unavailable("the webhook answered 503")),
        (says(503, Retry_After="7"), Unavailable("the webhook answered 503", 7_000)),
        (hangs_up, Unsure("the webhook does not speak HTTP")),
        (cuts_head, Unsure("the webhook does not speak HTTP")),
        (babbles, Unsure("the webhook does not speak HTTP")),
    ],
)
async def test_reply_of_a_receiver_is_the_outcome(act: Any, expected: Any):
    async with raw_server(act) as end, webhook() as one:
        assert await one.send(message(end.url)) == expected
    assert len(end.seen) == 1


async def test_unreachable_receiver_was_sent_nothing():
    async with raw_server(hangs_up) as end:
        pass
    async with webhook() as one:
        outcome = await one.send(message(end.url))
    assert outcome == Unavailable("the webhook does not answer: ConnectError")


async def test_nothing_is_sent_to_a_private_address():
    async with raw_server(says(204)) as end, webhook(private=False) as one:
        outcome = await one.send(message(end.url))
    assert isinstance(outcome, Refused)
    assert "private address" in outcome.reason
    assert end.seen == []


async def test_invalid_url_is_refused():
    async with webhook() as one:
        for url in ("ftp://x", "https://user:hunter2@example.org/", "nonsense"):
            outcome = await one.send(message(url))
            assert isinstance(outcome, Refused)
            assert "hunter2" not in outcome.reason


# ---------------------------------------------------------------------------------------- apprise

# Raised by apprise's own imports when it loads its services.
apprise = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


@asynccontextmanager
async def by_apprise(**settings: Any) -> AsyncIterator[AppriseUrl]:
    made = AppriseUrl(AppriseTable(**settings), REAL)
    try:
        yield made
    finally:
        await made.close()


def url_of(end: Any) -> str:
    return end.url.replace("http://", "json://user:hunter2@") + "/hunter2"


@apprise
async def test_message_is_sent_to_the_service_of_its_url(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    async with raw_server(says(200)) as end, by_apprise() as one:
        assert await one.send(message(url_of(end))) == Accepted(None)
    told = json.loads(end.seen[0].body)
    assert (told["title"], told["message"]) == ("Your parcel", "It comes today.")
    assert "hunter2" not in caplog.text


@apprise
@pytest.mark.parametrize("act", [says(500), says(403), hangs_up])
async def test_service_that_does_not_confirm_is_uncertain(
    act: Any, caplog: pytest.LogCaptureFixture
):
    async with raw_server(act) as end, by_apprise() as one:
        assert await one.send(message(url_of(end))) == Unsure("json did not confirm it")
    assert len(end.seen) == 1
    assert "hunter2" not in caplog.text


@apprise
async def test_service_that_does_not_answer_is_uncertain():
    async with raw_server(hangs) as end, by_apprise(timeout="2s") as one:
        assert await one.send(message(url_of(end))) == Unsure("json did not answer in time")


@apprise
async def test_message_whose_last_check_takes_too_long_is_not_sent_later():
    go_on = asyncio.Event()

    async def check() -> bool:
        return await go_on.wait()

    async with raw_server(says(200)) as end, by_apprise(timeout="1s") as one:
        with checking(check):
            outcome = await one.send(message(url_of(end)))
        assert outcome == Unavailable("json was not reached in time")
        go_on.set()
        await asyncio.to_thread(one._threads.shutdown)
        assert end.seen == []


@apprise
async def test_message_that_waits_too_long_for_a_thread_was_not_sent():
    async with raw_server(hangs) as end, by_apprise(timeout="1s", threads=1) as one:
        sent = [asyncio.create_task(one.send(message(url_of(end)))) for _ in range(2)]
        outcomes = await asyncio.gather(*sent)
    assert outcomes == [
        Unsure("json did not answer in time"), Unavailable("json was not reached in time")
    ]  # fmt: skip


@apprise
async def test_address_unknown_to_apprise_is_refused_and_not_shown():
    async with by_apprise() as one:
        outcome = await one.send(message("nosuchservice://hunter2"))
    assert outcome == Refused("the address is not an address that apprise supports")
