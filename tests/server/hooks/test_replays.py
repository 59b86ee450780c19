"""Webhooks repeated, sent at once or while the store is unreachable have exactly one effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from headway.contract.operate import ActRequest, Verb
from headway.contract.views import JobsQuery
from headway.core.naming import MAX_NAME, check_name
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.server.build import alive, build
from headway.server.hooks.signals import StatusMeaning, event_id
from headway.server.listener import ListenAddress, Listener
from headway.server.service import ServerOptions, Service
from headway.stores import open_store
from headway.testing.faulty import Fault, FaultyStore
from tests.server.hooks.awaiting_jobs import ALERTED, applied, awaiting, begun, post, post_all, seen
from tests.server.hooks.senders import (
    CALL,
    MESSAGE,
    SECRET,
    TOKEN,
    Mailer,
    call_status,
    from_standard,
    from_twilio,
)
from tests.server.rig import serving
from tests.servers.stores import DURABLE, NewUrl

MAILER = Mailer()
HOOKS = {
    "twilio": {"auth_tokens": TOKEN},
    "sendgrid": {"public_keys": MAILER.public_key},
    "standard": {"payments": {"keys": SECRET}},
}
TIMES = {"sqlite": 1_000, "postgresql": 200, "redis": 200}
"""Replays on each store; each takes longer on a server, and shows no more."""


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("kind", DURABLE)
async def test_concurrent_replays_have_one_effect(kind: str, new_url: NewUrl) -> None:
    async with serving(new_url(kind), hooks=HOOKS, tokens=False) as rig:
        ref = await awaiting(rig.store, CALL, policy=ALERTED)
        sent = from_twilio(f"{rig.url}/hooks/twilio", call_status("failed", 3))
        replies = await post_all(rig.http, [sent] * TIMES[kind])
        assert [one.status_code for one in replies] == [204] * TIMES[kind]
        assert await applied(rig.store) == (1, 0)
        alerts = (await rig.store.read(JobsQuery(lane="alerts"))).rows
        assert len(alerts) == 1
        job = await seen(rig.store, ref)
        assert (job.state, job.run) == (State.DEAD, 1)


async def test_mixed_concurrent_replays_of_every_provider_have_one_effect_each() -> None:
    async with serving(hooks=HOOKS, tokens=False) as rig:
        await awaiting(rig.store, CALL, policy=ALERTED)
        await awaiting(rig.store, "mail-1", policy=ALERTED)
        await awaiting(rig.store, "order-1", policy=ALERTED)
        now = REAL.wall_at()
        bounce = {"event": "bounce", "sg_event_id": "e", "sg_message_id": "mail-1.filter"}
        paid = {"type": "headway.signal", "data": {"key": "order-1", "final": "dead"}}
        sent = [
            from_twilio(f"{rig.url}/hooks/twilio", call_status("failed", 3)),
            MAILER.sends(f"{rig.url}/hooks/sendgrid", [bounce, bounce], now=now),
            from_standard(f"{rig.url}/hooks/payments", paid, now=now),
        ]
        replies = await post_all(rig.http, sent * 100)
        assert {one.status_code for one in replies} == {204}
        # A bounce is recorded as a note as well as a final signal.
        assert await applied(rig.store) == (4, 0)
        assert len((await rig.store.read(JobsQuery(lane="alerts"))).rows) == 3


async def test_replay_of_an_earlier_attempt_does_not_affect_the_awaiting_one() -> None:
    async with serving(hooks=HOOKS, tokens=False) as rig:
        url = f"{rig.url}/hooks/twilio"
        first = await awaiting(rig.store, CALL)
        own = first.partition(":")[0]
        await post(rig.http, from_twilio(url, call_status("busy", 3)))
        assert (await seen(rig.store, first)).state == "scheduled"
        await rig.store.act(ActRequest(request="r1", ids=(own,), verb=Verb.RUN_NOW, author="me"))
        second = await begun(rig.store, own, f"CA{7:032x}")
        for status in ("busy", "failed", "completed"):
            assert (
                await post(rig.http, from_twilio(url, call_status(status, 3)))
            ).status_code == 204
        job = await seen(rig.store, second)
        assert (job.state, job.run, job.attempt) == ("awaiting", 2, 2)
        await post(rig.http, from_twilio(url, call_status("completed", 3, f"CA{7:032x}")))
        assert (await seen(rig.store, second)).state == "succeeded"


@asynccontextmanager
async def faulty_server(*, at: int) -> AsyncIterator[tuple[FaultyStore, str, httpx.AsyncClient]]:
    inner = open_store("memory://")
    store = FaultyStore(inner)
    service = Service(store, ServerOptions(open_here=True, chores=False, hooks=HOOKS))
    app = build(service)
    listener = Listener(app, ListenAddress(port=0), on_stop=service.begin_stop)
    async with alive(service), httpx.AsyncClient() as http:
        running = asyncio.create_task(listener.run())
        await listener.answers()
        for nth in range(at, at + 2):
            store.plan(Fault.CUT if nth == at else Fault.REFUSE, operation="signal", nth=nth)
        yield store, listener.url, http
        listener.stop()
        await running
    await inner.close()


@pytest.mark.parametrize("at", [1, 2])
async def test_reply_asks_the_provider_to_retry_while_the_store_is_unreachable(at: int) -> None:
    async with faulty_server(at=at) as (store, url, http):
        ref = await awaiting(store.inner, MESSAGE, policy=ALERTED)
        # Two signals: a note, and the final one.
        said = {"MessageSid": MESSAGE, "MessageStatus": "failed"}
        sent = from_twilio(f"{url}/hooks/twilio", said)
        statuses: list[int] = []
        while 204 not in statuses:
            reply = await post(http, sent)
            statuses.append(reply.status_code)
            if reply.status_code == 503:
                assert "retry-after" in reply.headers
        assert statuses == [503, 503, 204]
        job = await seen(store.inner, ref)
        assert job.state == "dead"
        assert len([one for one in job.trail if one.author == "signal"]) == 1
        assert await applied(store.inner) == (2, 0)
        assert len((await store.inner.read(JobsQuery(lane="alerts"))).rows) == 1


async def test_one_failing_signal_of_many_makes_the_provider_retry_the_whole_webhook() -> None:
    async with faulty_server(at=3) as (store, url, http):
        refs = [await awaiting(store.inner, f"mail-{place}") for place in range(8)]
        events = [
            {"event": "delivered", "sg_event_id": f"e{place}", "sg_message_id": f"mail-{place}"}
            for place in range(8)
        ]
        sent = MAILER.sends(f"{url}/hooks/sendgrid", events, now=REAL.wall_at())
        statuses = [(await post(http, sent)).status_code for _ in range(2)]
        assert statuses == [503, 204]
        assert [(await seen(store.inner, ref)).state for ref in refs] == ["succeeded"] * 8
        assert await applied(store.inner) == (16, 0)


def test_events_of_different_parts_have_different_ids() -> None:
    parts = (("a", "b", "c"), ("a:b", "c"), ("a", "b:c"), ("a:b:c",), ("a", "b\0c"), ("a", "bc"))
    moved = (("a:", "b"), ("a", ":b"))
    assert len({event_id(*one) for one in (*parts, *moved)}) == len(parts) + len(moved)


@pytest.mark.parametrize(
    "part", ["a\0b", *("x" * n for n in range(MAX_NAME - 20, MAX_NAME + 2)), "x" * 5_000]
)
def test_event_of_any_parts_has_a_valid_id_for_each_of_its_signals(part: str) -> None:
    signals = StatusMeaning(noted=True).signals("k", event_id("p", part), status="s", body={})
    assert [check_name("event", one.event) for one in signals]
