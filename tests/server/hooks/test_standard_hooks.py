"""Standard Webhooks over HTTP, on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from headway.runtime.timing import REAL
from tests.server.hooks.awaiting_jobs import applied, awaiting, post, seen
from tests.server.hooks.senders import SECRET, PublicSigner, from_standard
from tests.server.rig import Rig, serving

SIGNER = PublicSigner()
HOOKS = {"standard": {"payments": {"keys": [SECRET]}, "parcels": {"keys": [SIGNER.public_key]}}}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving(hooks=HOOKS) as made:
        yield made


async def send_webhook(rig: Rig, data: Any, own: str = "msg_1", **more: Any) -> httpx.Response:
    said = {"type": "headway.signal", "timestamp": "2026-01-01T00:00:00Z", "data": data, **more}
    url = f"{rig.url}/hooks/payments"
    return await post(rig.http, from_standard(url, said, own=own, now=REAL.wall_at()))


async def test_data_is_a_signal(rig: Rig) -> None:
    ref = await awaiting(rig.store, "order 7")
    data = {"key": "order 7", "final": "dead", "reason": "declined", "body": {"ü": [1]}}
    assert (await send_webhook(rig, data)).status_code == 204
    job = await seen(rig.store, ref)
    assert (job.state, job.reason, job.result) == ("dead", "declined", '{"ü":[1]}'.encode())


async def test_webhook_id_is_the_event_id_unless_the_data_has_one(rig: Rig) -> None:
    await awaiting(rig.store, "k")
    for own in ("m1", "m1", "m2"):
        assert (await send_webhook(rig, {"key": "k", "note": "SEEN"}, own)).status_code == 204
    for own in ("m3", "m4"):
        await send_webhook(rig, {"key": "k", "note": "SEEN", "event": "e1"}, own)
    assert await applied(rig.store) == (3, 0)


async def test_webhook_signed_with_a_public_key_is_accepted_under_its_own_name(
    rig: Rig,
) -> None:
    ref = await awaiting(rig.store)
    said = {"type": "headway.signal", "data": {"key": ref, "final": "succeeded"}}
    sent = SIGNER.sends(f"{rig.url}/hooks/parcels", said, now=REAL.wall_at())
    other = SIGNER.sends(f"{rig.url}/hooks/payments", said, now=REAL.wall_at())
    assert (await post(rig.http, other)).status_code == 401
    assert (await post(rig.http, sent)).status_code == 204
    assert (await seen(rig.store, ref)).state == "succeeded"


async def test_equal_ids_of_two_senders_are_two_events(rig: Rig) -> None:
    await awaiting(rig.store, "k")
    said = {"type": "headway.signal", "data": {"key": "k", "note": "SEEN"}}
    sent = SIGNER.sends(f"{rig.url}/hooks/parcels", said, own="m1", now=REAL.wall_at())
    for reply in (await post(rig.http, sent), await send_webhook(rig, said["data"], "m1")):
        assert reply.status_code == 204
    assert await applied(rig.store) == (2, 0)


async def test_data_of_another_type_changes_no_job(rig: Rig) -> None:
    ref = await awaiting(rig.store)
    reply = await send_webhook(rig, {"key": ref, "final": "succeeded"}, type="invoice.paid")
    assert reply.status_code == 204
    assert await applied(rig.store) == (0, 0)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"key": 7, "final": "succeeded"},
        {"key": "", "final": "succeeded"},
        {"key": "k"},
        {"key": "k", "final": "succeeded", "note": "x"},
        {"key": "k", "final": "won"},
        {"key": "k", "progress": "yes"},
        {"key": "k", "progress": True, "extend": "soon"},
        {"key": "k", "final": "retry", "after": -1},
        {"key": "k", "final": "succeeded", "amount": 7},
        {"key": "k", "note": "x" * 600},
        {"key": "k", "note": "x", "event": "\0"},
    ],
)
async def test_invalid_signal_is_refused(rig: Rig, data: Any) -> None:
    reply = await send_webhook(rig, data)
    assert reply.status_code == 422
    assert reply.json()["code"] == "invalid_value"
    assert await applied(rig.store) == (0, 0)
