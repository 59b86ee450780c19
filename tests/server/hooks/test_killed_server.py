"""A server process that is killed with -9 while webhooks arrive, and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import httpx
import pytest

from headway.contract.views import JobsQuery
from headway.runtime.signals import SignalUrls
from headway.runtime.timing import REAL
from headway.stores import open_store
from tests.server.hooks.awaiting_jobs import ALERTED, applied, awaiting, post, seen
from tests.server.hooks.senders import TOKEN, Sent, call_status, from_twilio
from tests.servers.process import ServerProcess
from tests.servers.stores import DURABLE, NewUrl

JOBS = 40
TIMES = 5
SENDERS = 20
KILLS_AT = (30, 110)
KEY = "k" * 32
PUBLIC = "https://hw.example.org"
SETTINGS = f"""
public_url = "{PUBLIC}"
signing_key = "{KEY}"

[hooks.twilio]
auth_tokens = ["{TOKEN}"]
"""


class HeadwayServer(ServerProcess):
    """`headway serve` on a store that outlives it."""

    def __init__(self, store: str) -> None:
        super().__init__("serve", ready="server listens", last_signal=signal.SIGKILL)
        self._store = store
        (self.folder / "headway.toml").write_text(SETTINGS)

    def _command(self) -> Sequence[str]:
        line = ["serve", "--port", str(self.port), "--store", self._store]
        return [sys.executable, "-m", "headway", *line]

    def _run_as(self) -> Mapping[str, object]:
        return {"cwd": self.folder, "env": {**os.environ, "HEADWAY_LOG_LEVEL": "info"}}


@dataclass
class Provider:
    """Sends each webhook until it is acknowledged."""

    server: HeadwayServer
    left: list[Sent]
    answers: Counter[str]
    received: asyncio.Condition

    async def sends(self) -> None:
        async with httpx.AsyncClient(timeout=20) as http:
            while self.left:
                sent = self.left.pop()
                while not await self._was_received(http, sent):
                    await REAL.pause(0.01)
                async with self.received:
                    self.answers["received"] += 1
                    self.received.notify_all()

    async def _was_received(self, http: httpx.AsyncClient, sent: Sent) -> bool:
        there = sent.url.replace(PUBLIC, f"http://127.0.0.1:{self.server.port}")
        here = Sent(url=there, headers=sent.headers, body=sent.body)
        try:
            reply = await post(http, here)
        except httpx.TransportError:
            self.answers["cut"] += 1
            return False
        assert reply.status_code in {200, 204, 503}, reply.text
        return reply.status_code != 503

    async def wait_until_received(self, count: int) -> None:
        async with self.received:
            await self.received.wait_for(lambda: self.answers["received"] >= count)


@pytest.fixture
def killed(request: pytest.FixtureRequest, new_url: NewUrl) -> Iterator[tuple[HeadwayServer, str]]:
    url = new_url(request.param)
    with HeadwayServer(url) as server:
        yield server, url


@pytest.mark.slow
@pytest.mark.parametrize("killed", DURABLE, indirect=True)
async def test_webhooks_have_one_effect_though_their_server_is_killed_meanwhile(
    killed: tuple[HeadwayServer, str],
) -> None:
    server, url = killed
    store = open_store(url)
    urls, now = SignalUrls(base=PUBLIC, keys=(KEY,)), REAL.wall_at()
    refs: list[str] = []
    sent: list[Sent] = []
    for place in range(JOBS):
        sid = f"CA{place:032x}"
        refs.append(await awaiting(store, sid, policy=ALERTED))
        signed = urls.url(refs[-1], now)
        there = f"{PUBLIC}/hooks/twilio" if place % 2 else signed
        sent.append(from_twilio(there, call_status("failed", 3, sid)))
    provider = Provider(server, sent * TIMES, Counter(), asyncio.Condition())
    senders = [asyncio.create_task(provider.sends()) for _ in range(SENDERS)]
    for count in KILLS_AT:
        await provider.wait_until_received(count)
        server.kill()
        await asyncio.to_thread(server.start)
    await asyncio.gather(*senders)
    assert provider.answers["received"] == JOBS * TIMES
    assert provider.answers["cut"] > 0
    assert await applied(store) == (JOBS, 0)
    assert {(await seen(store, ref)).state for ref in refs} == {"dead"}
    assert len((await store.read(JobsQuery(lane="alerts"))).rows) == JOBS
    await store.close()
