"""POST /v1/signals/{key}, authenticated by a token or a signed URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from headway.contract.definitions import Role
from headway.runtime.signals import LIVES_MS, SignalUrls
from headway.runtime.timing import REAL
from headway.server.routes.signals import signal_urls
from tests.server.hooks.awaiting_jobs import applied, awaiting, post_all, seen
from tests.server.hooks.calling_app import app, in_loop, in_process, in_thread
from tests.server.hooks.senders import CALL, Sent, call_status
from tests.server.rig import Rig, serving

KEY, OLD_KEY = "k" * 32, "o" * 32
MAY = (Role.PRODUCER, Role.WORKER, Role.OPERATOR, Role.ADMIN)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving(signing_keys=(KEY, OLD_KEY)) as made:
        yield made


def path(key: str) -> str:
    return f"/v1/signals/{quote(key, safe='')}"


def url(rig: Rig, ref: str) -> str:
    return signal_urls(rig.service, rig.url).url(ref, rig.service.timing.wall_at())


@pytest.mark.parametrize("role", MAY)
async def test_final_signal_settles_its_job(rig: Rig, role: Role) -> None:
    ref = await awaiting(rig.store, "order/7 ü")
    body = {"event": "e1", "final": "succeeded", "body": {"ok": True}}
    reply = await rig.call(role, "POST", path("order/7 ü"), body)
    assert reply.status_code == 200
    own = ref.partition(":")[0]
    assert reply.json() == {"answer": "applied", "job": own, "state": "succeeded"}
    assert (await seen(rig.store, ref)).result == b'{"ok":true}'
    again = await rig.call(role, "POST", path("order/7 ü"), body)
    assert again.json()["answer"] == "already"
    late = await rig.call(role, "POST", path("order/7 ü"), {"event": "e2", "final": "dead"})
    assert late.json()["answer"] == "late"


async def test_each_type_of_signal_has_its_effect(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    before = (await seen(rig.store, ref)).deadline_at or 0
    said: list[dict[str, Any]] = [
        {"event": "1", "progress": True, "extend": "5h", "body": {"at": 1}},
        {"event": "2", "note": "RINGING", "reason": "why"},
        {"event": "3", "final": "retry", "after": 3_600_000, "reason": "busy"},
    ]
    for one in said:
        reply = await rig.call(Role.PRODUCER, "POST", path(ref), one)
        assert reply.json()["answer"] == "applied"
        if one["event"] == "1":
            job = await seen(rig.store, ref)
            assert (job.progress, (job.deadline_at or 0) - before > 3 * 3_600_000) == (
                b'{"at":1}',
                True,
            )
    job = await seen(rig.store, ref)
    assert (job.state, job.reason) == ("scheduled", "busy")


async def test_signal_without_a_job_is_kept_for_it(rig: Rig) -> None:
    reply = await rig.call(Role.WORKER, "POST", path("sid-1"), {"event": "1", "final": "succeeded"})
    assert reply.json() == {"answer": "kept", "job": None, "state": None}
    assert (await seen(rig.store, await awaiting(rig.store, "sid-1"))).state == "succeeded"


async def test_caller_without_permission_to_signal_is_refused(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    body = {"event": "1", "final": "succeeded"}
    assert (await rig.call(None, "POST", path(ref), body)).status_code == 401
    assert (await rig.call("hw_wrong", "POST", path(ref), body)).status_code == 401
    assert (await rig.call(Role.VIEWER, "POST", path(ref), body)).status_code == 403
    assert (await seen(rig.store, ref)).state == "awaiting"


async def test_token_for_some_tenants_signals_only_their_jobs(rig: Rig) -> None:
    acme = await rig.token(Role.PRODUCER, tenants=["acme"])
    mine = await awaiting(rig.store, "sid-mine", tenant="acme")
    other = await awaiting(rig.store, "sid-other", tenant="zeta")
    body = {"event": "1", "final": "succeeded"}
    nobody = "0190d2f0-0000-7000-8000-000000000000:1"
    refused = [
        await rig.call(acme, "POST", path(key), body)
        for key in (
            other,
            other.partition(":")[0],
            nobody,
            "sid-other",
            "not-there-yet",
            f"{mine}:x",
        )
    ]
    assert {one.status_code for one in refused} == {404}
    assert {one.json()["code"] for one in refused} == {"unknown_job"}
    assert await applied(rig.store) == (0, 0)
    assert (await rig.call(acme, "POST", path(mine), body)).json()["answer"] == "applied"


async def test_token_for_some_lanes_signals_only_their_jobs(rig: Rig) -> None:
    caller = await rig.token(Role.WORKER, lanes=["call*"])
    mine, other = await awaiting(rig.store), await awaiting(rig.store, lane="mail")
    body = {"event": "1", "final": "succeeded"}
    assert (await rig.call(caller, "POST", path(other), body)).status_code == 404
    assert (await rig.call(caller, "POST", path(mine), body)).status_code == 200


async def test_no_signal_registers_the_reference_of_another_job_for_its_run(rig: Rig) -> None:
    mine, other = await awaiting(rig.store), await awaiting(rig.store, "sid-other")
    caller = await rig.token(Role.WORKER, lanes=["call*"])
    for key in (other, other.partition(":")[0], other.replace(":1", ":9")):
        body = {"event": "1", "progress": True, "known_as": key}
        for who, to in ((caller, path(mine)), (None, url(rig, mine))):
            reply = await rig.call(who, "POST", to, body)
            assert reply.status_code == 422
            assert reply.json()["code"] == "invalid_value"
    body = {"event": "1", "progress": True, "known_as": f"{mine[:36]}:7"}
    assert (await rig.call(caller, "POST", path(mine), body)).json()["answer"] == "applied"
    final = {"event": "2", "final": "succeeded"}
    assert (await rig.call(None, "POST", url(rig, other), final)).json()["job"] == other[:36]


async def test_trail_names_no_job_of_another_lane_whose_key_a_signal_gives(rig: Rig) -> None:
    mine, other = await awaiting(rig.store), await awaiting(rig.store, "sid-other", lane="mail")
    caller = await rig.token(Role.WORKER, lanes=["call*"])
    order = "0190d2f0-0000-7000-8000-000000000000"
    for body in (
        {"event": "1", "progress": True, "known_as": "sid-other"},
        {"event": "2", "note": f"order {order}"},
    ):
        assert (await rig.call(caller, "POST", path(mine), body)).json()["answer"] == "applied"

    async def notes(who: Role | str) -> list[str]:
        return [one["what"] for one in (await rig.ask(who, f"/v1/jobs/{mine[:36]}"))["trail"]]

    said = "note the key sid-other names another job, "
    assert await notes(Role.VIEWER) == [f"{said}{other[:36]}", f"note order {order}"]
    assert await notes(caller) == [f"{said}another's job", f"note order {order}"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"event": "1"},
        {"final": "succeeded"},
        {"event": "", "final": "succeeded"},
        {"event": "1", "final": "succeeded", "note": "x"},
        {"event": "1", "final": "won"},
        {"event": "1", "progress": 1},
        {"event": "1", "progress": True, "extend": "soon"},
        {"event": "1", "final": "succeeded", "state": "dead"},
        {"event": "1", "note": "x", "body": "y" * 1_000_001},
        {"event": "1", "note": "x", "reason": "y" * 4_001},
        [],
        "final",
    ],
)
async def test_invalid_signal_is_refused_and_writes_nothing(rig: Rig, body: Any) -> None:
    ref = await awaiting(rig.store)
    reply = await rig.call(Role.PRODUCER, "POST", path(ref), body)
    assert reply.status_code in {413, 422}
    assert reply.headers["content-type"] == "application/problem+json"
    assert await applied(rig.store) == (0, 0)


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "x/y"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"event=%ff&note=x",
        b"[" * 100_000,
        b'{"a":' * 5_000,
        b'{"event": "1", "note": "x", "body": NaN}',
        b'{"event": "1", "note": "x", "body": 1e999}',
        b'{"event": "1", "note": "\\ud800"}',
        b"&".join(b"a%d=1" % place for place in range(2_000)),
        b"note=x&note=y&event=1",
        b"progress=1&extend=" + b"9" * 400,
        b"final=retry&after=-1",
    ],
    ids=range(12),
)
async def test_no_body_makes_the_server_fail(rig: Rig, body: bytes, kind: str) -> None:
    ref = await awaiting(rig.store)
    for there in (url(rig, ref), f"{url(rig, ref)}&note=x&extend=%ff"):
        reply = await rig.http.post(there, content=body, headers={"Content-Type": kind})
        assert reply.status_code in {400, 422}
        assert reply.headers["content-type"] == "application/problem+json"
    assert await applied(rig.store) == (0, 0)


@pytest.mark.parametrize("key", ["", "k" * 513, "a\0b"])
async def test_invalid_key_is_refused(rig: Rig, key: str) -> None:
    reply = await rig.call(Role.ADMIN, "POST", path(key), {"event": "1", "note": "x"})
    assert reply.status_code == 422


async def test_signed_url_needs_no_token_and_is_valid_only_for_its_run(rig: Rig) -> None:
    ref, other = await awaiting(rig.store), await awaiting(rig.store)
    signed, body = url(rig, ref), {"event": "1", "final": "succeeded"}
    query = signed.partition("?")[2]
    assert (await rig.call(None, "POST", f"{path(other)}?{query}", body)).status_code == 401
    assert (await rig.call(None, "GET", f"/v1/jobs/{ref[:36]}?{query}")).status_code in {401, 404}
    for spoilt in (
        signed[:-1],
        signed.replace("expires=", "expires=1"),
        f"{signed}&{query}",
        signed.partition("&")[0],
        f"{path(ref)}?signature=x",
        f"{path(ref)}?expires=",
    ):
        refused = await rig.call(None, "POST", spoilt, body)
        assert refused.status_code == 401
        assert KEY not in refused.text
        # A token does not fix this.
        assert (await rig.call(Role.ADMIN, "POST", spoilt, body)).status_code == 401
    assert (await rig.call(None, "POST", signed, body)).json()["answer"] == "applied"
    assert (await seen(rig.store, other)).state == "awaiting"


async def test_expired_or_foreign_url_refuses_and_one_of_an_older_key_does_not(
    rig: Rig,
) -> None:
    ref, now, body = await awaiting(rig.store), REAL.wall_at(), {"event": "1", "note": "x"}

    async def status(key: str, made_at: int) -> int:
        made = SignalUrls(base=rig.url, keys=(key,)).url(ref, made_at)
        return (await rig.call(None, "POST", made, body)).status_code

    assert await status(KEY, now - LIVES_MS - 86_400_000) == 401
    assert await status("x" * 32, now) == 401
    assert await status(OLD_KEY, now) == 200


async def test_no_signature_is_valid_without_a_signing_key() -> None:
    async with serving() as rig:
        ref = await awaiting(rig.store)
        made = SignalUrls(base=rig.url, keys=("",)).url(ref, REAL.wall_at())
        reply = await rig.call(None, "POST", made, {"event": "1", "note": "x"})
        assert reply.status_code == 401
        assert url(rig, ref) == f"{rig.url}/v1/signals/{ref.replace(':', '%3A')}"


async def test_open_server_accepts_unsigned_urls() -> None:
    async with serving(tokens=False) as rig:
        ref = await awaiting(rig.store)
        reply = await rig.call(None, "POST", url(rig, ref), {"event": "1", "final": "succeeded"})
        assert reply.json()["answer"] == "applied"


async def test_twilio_status_callback_to_a_signed_url_is_understood(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    for place, status in enumerate(("ringing", "completed", "completed", "busy")):
        sequence = min(place, 1)
        reply = await rig.http.post(url(rig, ref), data=call_status(status, sequence))
        assert reply.status_code == 200
    job = await seen(rig.store, ref)
    assert job.state == "succeeded"
    assert job.result is not None
    assert CALL.encode() in job.result
    assert await applied(rig.store) == (3, 1)


async def test_form_with_a_signals_fields_is_a_signal(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    form = {"final": "retry", "after": "90m", "reason": "busy", "anything": "else"}
    first = await rig.http.post(url(rig, ref), data=form)
    again = await rig.http.post(url(rig, ref), data=form)
    assert [one.json()["answer"] for one in (first, again)] == ["applied", "already"]
    assert (await seen(rig.store, ref)).reason == "busy"


async def test_form_without_content_settles_nothing(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    for form in ({}, {"status": "done"}, {"progress": "no"}, {"CallStatus": "completed"}):
        assert (await rig.http.post(url(rig, ref), data=form)).status_code in {400, 422}
    assert (await seen(rig.store, ref)).state == "awaiting"


async def test_json_declared_as_a_form_is_read_as_json(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = b'{"event": "e1", "final": "succeeded"}'
    reply = await rig.http.post(url(rig, ref), content=body, headers=headers)
    assert reply.json()["answer"] == "applied"


async def test_callback_with_its_type_in_the_url_may_have_any_content(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    noted = f"{url(rig, ref)}&note=SEEN"
    first = await rig.http.post(noted, json=["any", {"thing": 1}])
    again = await rig.http.post(noted, json=["any", {"thing": 1}])
    other = await rig.http.post(noted, json=["any", {"thing": 2}])
    answers = [one.json()["answer"] for one in (first, again, other)]
    assert answers == ["applied", "already", "applied"]
    done = await rig.http.post(f"{url(rig, ref)}&final=succeeded&event=e9", data={"a": "ü"})
    assert done.json()["answer"] == "applied"
    assert (await seen(rig.store, ref)).result == '{"a":"ü"}'.encode()


async def test_concurrent_copies_of_a_signal_are_applied_once(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    sent = Sent(
        url=url(rig, ref),
        headers=(("Content-Type", "application/json"),),
        body=b'{"event": "e1", "final": "succeeded"}',
    )
    answers = [one.json()["answer"] for one in await post_all(rig.http, [sent] * 200)]
    assert sorted(answers) == sorted(["applied"] + ["already"] * 199)


async def test_url_given_to_a_handler_signals_its_run() -> None:
    async with app, serving(app=app, signing_keys=(KEY,)) as rig:
        refs = [(await app.send_async(kind)).id for kind in (in_loop, in_thread, in_process)]
        worker = app.worker(signal_base=rig.url, signing_key=(KEY,), lanes="urls")
        running = asyncio.create_task(worker.run())
        for ref in refs:
            while (job := await seen(rig.store, ref)).state != "succeeded":
                await REAL.pause(0.005)
            made = msgspec.json.decode(job.result or b"")
            assert made.startswith(f"{rig.url}/v1/signals/{ref}%3A1?expires=")
            reply = await rig.call(None, "POST", made, {"event": "1", "note": "DELIVERED"})
            assert reply.json() == {"answer": "applied", "job": ref, "state": "succeeded"}
        worker.stop()
        await running
