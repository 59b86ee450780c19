"""Twilio's status callbacks over HTTP, on a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import permutations

import httpx
import pytest

from headway.contract.signals import Signal, SignalKind
from headway.core.job import MAX_RESULT
from headway.server.build import alive, build
from headway.server.hooks.request import HookRequest
from headway.server.listener import ListenAddress, Listener
from headway.server.service import ServerOptions, Service
from headway.stores import open_store
from tests.server.hooks.awaiting_jobs import applied, awaiting, labels, post, post_all, seen
from tests.server.hooks.senders import CALL, MESSAGE, TOKEN, call_status, from_twilio
from tests.server.rig import Rig, serving

HOOKS = {"twilio": {"auth_tokens": [TOKEN]}}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving(hooks=HOOKS) as made:
        yield made


def message(status: str, **more: str) -> dict[str, str]:
    return {"MessageSid": MESSAGE, "SmsSid": MESSAGE, "MessageStatus": status, **more}


async def test_completed_call_settles_its_job_with_all_twilio_reports(rig: Rig) -> None:
    ref = await awaiting(rig.store, CALL)
    sent = from_twilio(f"{rig.url}/hooks/twilio", call_status("completed", 3, CallDuration="41"))
    reply = await post(rig.http, sent)
    assert (reply.status_code, reply.content) == (204, b"")
    job = await seen(rig.store, ref)
    assert (job.state, job.reason) == ("succeeded", "")
    assert job.result is not None
    assert b'"CallDuration":"41"' in job.result


async def test_end_of_a_call_counts_though_its_report_is_too_large_to_be_stored(rig: Rig) -> None:
    ref = await awaiting(rig.store, CALL)
    # Quotes are twice as long in JSON: the form itself is within the limit of a request.
    said = call_status("completed", 3, Note='"' * (MAX_RESULT // 2))
    assert (await post(rig.http, from_twilio(f"{rig.url}/hooks/twilio", said))).status_code == 204
    job = await seen(rig.store, ref)
    assert (job.state, job.result) == ("succeeded", None)


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        ("busy", "scheduled", "busy"),
        ("no-answer", "scheduled", "no-answer"),
        ("failed", "dead", "failed, error 32009, SIP 404"),
        ("canceled", "dead", "canceled"),
    ],
)
async def test_call_that_was_not_made_is_retried_or_dead(
    rig: Rig, status: str, state: str, reason: str
) -> None:
    ref = await awaiting(rig.store, CALL)
    more = {"ErrorCode": "32009", "SipResponseCode": "404"} if status == "failed" else {}
    await post(rig.http, from_twilio(f"{rig.url}/hooks/twilio", call_status(status, 2, **more)))
    job = await seen(rig.store, ref)
    assert (job.state, job.reason) == (state, reason)


async def test_call_status_is_recorded_and_an_answer_is_progress(rig: Rig) -> None:
    ref = await awaiting(rig.store, CALL)
    # A status may be reported again later, as another event.
    for place, status in enumerate(("initiated", "ringing", "ringing", "in-progress")):
        sent = from_twilio(f"{rig.url}/hooks/twilio", call_status(status, place))
        assert (await post(rig.http, sent)).status_code == 204
    job = await seen(rig.store, ref)
    assert job.state == "awaiting"
    noted = [one.reason for one in job.trail if one.author == "signal"]
    assert noted == ["initiated", "ringing", "ringing"]
    assert job.progress is not None
    assert b'"CallStatus":"in-progress"' in job.progress


async def test_callbacks_in_any_order_have_the_same_result(rig: Rig) -> None:
    sids = [f"CA{place:032x}" for place in range(6)]
    statuses = list(enumerate(("ringing", "in-progress", "completed")))
    for sid, order in zip(sids, permutations(statuses), strict=True):
        ref = await awaiting(rig.store, sid)
        for place, status in order:
            fields = call_status(status, place, sid)
            assert (
                await post(rig.http, from_twilio(f"{rig.url}/hooks/twilio", fields))
            ).status_code == 204
        assert (await seen(rig.store, ref)).state == "succeeded"


async def test_end_after_another_end_changes_nothing(rig: Rig) -> None:
    ref = await awaiting(rig.store, CALL)
    for place, status in enumerate(("completed", "failed")):
        sent = from_twilio(f"{rig.url}/hooks/twilio", call_status(status, place))
        assert (await post(rig.http, sent)).status_code == 204
    assert (await seen(rig.store, ref)).state == "succeeded"
    assert await applied(rig.store) == (2, 1)


async def test_callback_before_its_job_is_known_is_kept_for_it(rig: Rig) -> None:
    sent = from_twilio(f"{rig.url}/hooks/twilio", call_status("completed", 3))
    assert (await post(rig.http, sent)).status_code == 204
    ref = await awaiting(rig.store, CALL)
    assert (await seen(rig.store, ref)).state == "succeeded"


async def test_reference_in_the_url_finds_the_job_without_its_sid(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    url = f"{rig.url}/hooks/twilio?ref={ref.replace(':', '%3A')}"
    await post(rig.http, from_twilio(url, call_status("completed", 3)))
    assert (await seen(rig.store, ref)).state == "succeeded"


async def test_delivered_message_is_recorded_and_settles_its_job(rig: Rig) -> None:
    ref = await awaiting(rig.store, MESSAGE)
    for status in ("queued", "sent", "delivered", "read"):
        await post(rig.http, from_twilio(f"{rig.url}/hooks/twilio", message(status)))
    job = await seen(rig.store, ref)
    assert job.state == "succeeded"
    noted = [one.reason for one in job.trail if one.author == "signal"]
    assert noted == ["queued", "sent", "delivered", "read"]


async def test_undeliverable_message_is_dead_with_its_error(rig: Rig) -> None:
    ref = await awaiting(rig.store, MESSAGE)
    said = message("undelivered", ErrorCode="30003", ErrorMessage="Unreachable\0 handset")
    await post(rig.http, from_twilio(f"{rig.url}/hooks/twilio", said))
    job = await seen(rig.store, ref)
    assert (job.state, job.reason) == ("dead", "undelivered, error 30003, Unreachable handset")


async def test_unknown_status_is_recorded_and_settles_nothing(rig: Rig) -> None:
    ref = await awaiting(rig.store, CALL)
    sent = from_twilio(f"{rig.url}/hooks/twilio", call_status("teleported", 4))
    assert (await post(rig.http, sent)).status_code == 204
    assert (await seen(rig.store, ref)).state == "awaiting"
    assert len(await labels(rig.store, ref)) == 1


async def test_fields_split_differently_find_no_job(rig: Rig) -> None:
    ref = await awaiting(rig.store, CALL)
    honest = from_twilio(f"{rig.url}/hooks/twilio", {"CallSid": CALL, "CallStatus": "completed"})
    # The signed text is the same: it joins names and values without a separator.
    forged = replace(honest, body=f"CallSid={CALL}CallStatus&completed=".encode())
    assert (await post(rig.http, forged)).status_code == 204
    assert (await seen(rig.store, ref)).state == "awaiting"


@pytest.mark.parametrize("sid", ["CA1", f"{CALL}CallStatus", CALL[2:], "", f"{CALL}\n"])
async def test_foreign_id_finds_no_job(rig: Rig, sid: str) -> None:
    sent = from_twilio(f"{rig.url}/hooks/twilio", call_status("completed", 3, sid))
    assert (await post(rig.http, sent)).status_code == 204
    if sid:
        ref = await awaiting(rig.store, sid)
        assert (await seen(rig.store, ref)).state == "awaiting"


async def test_unsigned_webhook_is_refused_and_an_unconfigured_one_is_not_found(
    rig: Rig,
) -> None:
    ref = await awaiting(rig.store, CALL)
    sent = from_twilio(f"{rig.url}/hooks/twilio", call_status("completed", 3))
    refusals = [
        await post(rig.http, sent.with_header("X-Twilio-Signature", None)),
        await post(rig.http, sent.with_header("X-Twilio-Signature", "AAAA")),
        await post(rig.http, sent.twice("X-Twilio-Signature")),
        await post(rig.http, from_twilio(sent.url, call_status("completed", 3), token=TOKEN[::-1])),
    ]
    assert {one.status_code for one in refusals} == {401}
    assert {one.headers["content-type"] for one in refusals} == {"application/problem+json"}
    assert not any(TOKEN in one.text for one in refusals)
    for name in ("sendgrid", "payments", "twilio/x"):
        missing = await post(rig.http, replace(sent, url=f"{rig.url}/hooks/{name}"))
        assert missing.status_code == 404
    assert (await rig.http.get("/hooks/twilio")).status_code == 405
    assert (await seen(rig.store, ref)).state == "awaiting"
    assert await applied(rig.store) == (0, 0)


async def test_public_url_is_what_was_signed_behind_a_proxy() -> None:
    async with serving(hooks=HOOKS, public_url="https://hw.example.org/x") as rig:
        ref = await awaiting(rig.store, CALL)
        outside = "https://hw.example.org/x/hooks/twilio"
        sent = from_twilio(outside, call_status("completed", 3))
        came = replace(sent, url=f"{rig.url}/hooks/twilio")
        inside = from_twilio(f"{rig.url}/hooks/twilio", call_status("completed", 3))
        assert (await post(rig.http, inside)).status_code == 401
        forwarded = inside.with_header("X-Forwarded-Proto", "https")
        assert (await post(rig.http, forwarded)).status_code == 401
        assert (await post(rig.http, came)).status_code == 204
        assert (await seen(rig.store, ref)).state == "succeeded"


async def test_forwarded_headers_of_an_untrusted_client_are_not_believed(rig: Rig) -> None:
    plain = rig.url.replace("http:", "https:")
    sent = from_twilio(f"{plain}/hooks/twilio", call_status("completed", 3))
    came = replace(sent, url=f"{rig.url}/hooks/twilio").with_header("X-Forwarded-Proto", "https")
    assert (await post(rig.http, came)).status_code == 401


async def test_trusted_proxy_says_which_scheme_was_used() -> None:
    store = open_store("memory://")
    service = Service(store, ServerOptions(open_here=True, chores=False, hooks=HOOKS))
    address = ListenAddress(port=0, trusted_proxies=("127.0.0.1",))
    listener = Listener(build(service), address, on_stop=service.begin_stop)
    async with alive(service), httpx.AsyncClient() as http:
        running = asyncio.create_task(listener.run())
        await listener.answers()
        ref = await awaiting(store, CALL)
        outside = f"{listener.url.replace('http:', 'https:')}/hooks/twilio"
        sent = from_twilio(outside, call_status("completed", 3))
        here = replace(sent, url=f"{listener.url}/hooks/twilio")
        assert (await post(http, here)).status_code == 401
        forwarded = here.with_header("X-Forwarded-Proto", "https")
        misled = forwarded.with_header("X-Forwarded-Host", "evil.example")
        assert (await post(http, misled)).status_code == 204
        assert (await seen(store, ref)).state == "succeeded"
        listener.stop()
        await running
    await store.close()


async def test_system_can_read_a_providers_webhooks_in_its_own_way(rig: Rig) -> None:
    ref = await awaiting(rig.store, CALL)

    def reading(request: HookRequest) -> list[Signal]:
        assert b"busy" in request.body
        return [Signal(key=CALL, event="own", kind=SignalKind.NOTE, label="WAITS")]

    rig.service.hooks.read_with("twilio", reading)
    sent = from_twilio(f"{rig.url}/hooks/twilio", call_status("busy", 3))
    assert (await post(rig.http, sent)).status_code == 204
    assert (await seen(rig.store, ref)).state == "awaiting"
    refused = await post(rig.http, sent.with_header("X-Twilio-Signature", "AAAA"))
    assert refused.status_code == 401


async def test_one_webhook_for_each_of_many_jobs_reaches_its_own(rig: Rig) -> None:
    sids = [f"CA{place:032x}" for place in range(40)]
    refs = [await awaiting(rig.store, sid) for sid in sids]
    url = f"{rig.url}/hooks/twilio"
    sent = [
        from_twilio(url, call_status("completed", 3, sid, CallDuration=sid[-2:])) for sid in sids
    ]
    assert {one.status_code for one in await post_all(rig.http, sent)} == {204}
    for sid, ref in zip(sids, refs, strict=True):
        job = await seen(rig.store, ref)
        assert job.result is not None
        assert sid.encode() in job.result
