"""SendGrid's events over HTTP, on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from headway.runtime.timing import REAL
from tests.server.hooks.awaiting_jobs import applied, awaiting, post, seen
from tests.server.hooks.senders import Mailer
from tests.server.rig import Rig, serving

MAILER = Mailer()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving(hooks={"sendgrid": {"public_keys": MAILER.public_key}}) as made:
        yield made


async def send_events(rig: Rig, *events: Any) -> httpx.Response:
    return await post(
        rig.http, MAILER.sends(f"{rig.url}/hooks/sendgrid", list(events), now=REAL.wall_at())
    )


def event(what: str, own: str, **more: Any) -> dict[str, Any]:
    return {"event": what, "sg_event_id": own, "email": "a@example.org", **more}


async def test_events_of_many_mails_in_one_webhook_reach_their_jobs(rig: Rig) -> None:
    by_ref = await awaiting(rig.store)
    by_mail = await awaiting(rig.store, "14c5d75ce93.dfd.64b469")
    bounced = await awaiting(rig.store, "s7lTBqSdTRq_x-y")
    way = ".filterdrecv-5645d9c87f-78xgx-1-5F5F-1.0"
    reply = await send_events(
        rig,
        event("processed", "e1", headway_ref=by_ref),
        event("delivered", "e2", headway_ref=by_ref, response="250 OK"),
        event("delivered", "e3", sg_message_id="14c5d75ce93.dfd.64b469.filter0001.16648.5515.0"),
        event("bounce", "e4", sg_message_id=f"s7lTBqSdTRq_x-y{way}", reason="550 no such user"),
        event("delivered", "e5", sg_message_id=f"somebody-else{way}"),
    )
    assert (reply.status_code, reply.content) == (204, b"")
    ends = [await seen(rig.store, ref) for ref in (by_ref, by_mail, bounced)]
    assert [one.state for one in ends] == ["succeeded", "succeeded", "dead"]
    assert ends[2].reason == "bounce, 550 no such user"
    noted = [one.reason for one in ends[0].trail if one.author == "signal"]
    assert noted == ["processed", "delivered, 250 OK"]


async def test_events_after_the_end_are_recorded(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    await send_events(rig, event("delivered", "e1", headway_ref=ref))
    await send_events(
        rig, event("open", "e2", headway_ref=ref), event("click", "e3", headway_ref=ref)
    )
    job = await seen(rig.store, ref)
    assert [one.reason for one in job.trail if one.author == "signal"] == [
        "delivered",
        "open",
        "click",
    ]


async def test_one_unintelligible_event_does_not_stop_the_others(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    strange: list[Any] = [
        7,
        None,
        {},
        {"event": 7, "headway_ref": ref},
        event("delivered", "x", headway_ref=["a"]),
        event("delivered", "y", headway_ref="\0"),
        event("delivered", "z", headway_ref="k" * 600),
        event("teleported", "t", headway_ref=ref),
    ]
    reply = await send_events(rig, *strange, event("delivered", "e1", headway_ref=ref))
    assert reply.status_code == 204
    assert (await seen(rig.store, ref)).state == "succeeded"


async def test_event_without_an_id_is_identified_by_its_content(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    opened = {"event": "open", "headway_ref": ref, "timestamp": 1}
    await send_events(rig, opened)
    await send_events(rig, dict(reversed(opened.items())), {**opened, "timestamp": 2})
    assert await applied(rig.store) == (2, 0)


async def test_signed_webhook_that_is_not_a_list_is_refused(rig: Rig) -> None:
    for body in (b"", b"{}", b"[", b"[NaN]", b"[" * 100_000):
        sent = MAILER.signs(f"{rig.url}/hooks/sendgrid", body, now=REAL.wall_at())
        assert (await post(rig.http, sent)).status_code in {400, 422}


async def test_old_webhook_is_refused(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    events = [event("delivered", "e1", headway_ref=ref)]
    sent = MAILER.sends(f"{rig.url}/hooks/sendgrid", events, now=REAL.wall_at() - 301_000)
    assert (await post(rig.http, sent)).status_code == 401
    assert (await seen(rig.store, ref)).state == "awaiting"


async def test_foreign_mail_is_ignored_if_only_references_count() -> None:
    table = {"sendgrid": {"public_keys": MAILER.public_key, "only_refs": True}}
    async with serving(hooks=table) as rig:
        mine, other = await awaiting(rig.store), await awaiting(rig.store, "mail-1")
        delivered = event("delivered", "e1", sg_message_id="mail-1.filter1")
        await send_events(rig, delivered, event("delivered", "e2", headway_ref=mine))
        assert (await seen(rig.store, mine)).state == "succeeded"
        assert (await seen(rig.store, other)).state == "awaiting"
