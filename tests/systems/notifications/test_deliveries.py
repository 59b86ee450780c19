from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from headway.core.errors import InvalidValue
from headway.server.hooks.request import FORM, HookRequest
from headway.systems.notifications.delivery import (
    DeliveryEvent,
    read_mail_delivery,
    read_text_delivery,
)
from tests.systems.telephony.accounts import MESSAGE, twilio

URL = "https://headway.test/notifications/hooks/twilio/status?ref=1"


def form(**fields: str) -> HookRequest:
    headers = (("content-type", FORM),)
    return HookRequest(method="POST", url=URL, headers=headers, body=urlencode(fields).encode())


def events(*rows: dict[str, Any]) -> HookRequest:
    return HookRequest(method="POST", url=URL, headers=(), body=json.dumps(rows).encode())


def status(status: str, **more: str) -> HookRequest:
    return form(MessageSid=MESSAGE, MessageStatus=status, **more)


async def test_delivered_and_undelivered_text():
    texts = twilio("http://127.0.0.1:1")
    for way in ("queued", "sent"):
        assert read_text_delivery(texts, status(way)) == ()
    (arrived,) = read_text_delivery(texts, status("delivered"))
    found = {"delivered": True, "reason": "", "ref": "1"}
    assert arrived == DeliveryEvent(MESSAGE, arrived.event, **found)
    to = {"To": "+14155550100"}
    (unreachable,) = read_text_delivery(texts, status("undelivered", ErrorCode="30003", **to))
    assert (unreachable.delivered, unreachable.gone) == (False, "")
    assert unreachable.reason == "undelivered, error 30003"
    (unknown,) = read_text_delivery(texts, status("failed", ErrorCode="30005", **to))
    assert (unknown.delivered, unknown.gone) == (False, "+14155550100")
    assert len({arrived.event, unreachable.event, unknown.event}) == 3
    await texts.close()


def test_delivered_and_undelivered_mails():
    mail = {"sg_message_id": "m-1.filter0001.1.2.3-0", "email": "ada@example.org"}
    found = read_mail_delivery(
        events(
            {"event": "processed", "sg_event_id": "e0", **mail},
            {"event": "delivered", "sg_event_id": "e1", "response": "250 OK", **mail},
            {"event": "bounce", "sg_event_id": "e2", "status": "5.1.1", "reason": "none", **mail},
            {"event": "bounce", "sg_event_id": "e3", "status": "5.2.2", "reason": "full", **mail},
            {"event": "bounce", "type": "blocked", "sg_event_id": "e4", "status": "5.1.1", **mail},
            {"event": "dropped", "sg_event_id": "e5", "reason": "Unsubscribed Address", **mail},
            {"event": "open", "sg_event_id": "e6", **mail},
            {"event": "delivered", "sg_event_id": "e7"},
        )
    )
    told = [(one.provider_id, one.delivered, one.reason, one.gone) for one in found]
    assert told == [
        ("m-1", True, "", ""),
        ("m-1", False, "bounce, none", "ada@example.org"),
        ("m-1", False, "bounce, full", ""),
        ("m-1", False, "bounce", ""),
        ("m-1", False, "dropped, Unsubscribed Address", ""),
    ]
    assert len({one.event for one in found}) == 5


def test_body_that_is_not_a_list_of_events_is_refused():
    with pytest.raises(InvalidValue, match="not a list of events"):
        read_mail_delivery(HookRequest(method="POST", url=URL, headers=(), body=b"{}"))
