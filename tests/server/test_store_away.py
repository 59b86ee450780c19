"""A store that is unreachable for a while: the server reports it, recovers, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from headway.runtime.timing import pause
from tests.server.rig import Rig, serving
from tests.servers.fixtures import made
from tests.servers.postgres import PostgresServer, fresh_database
from tests.servers.redis import RedisServer
from tests.torture.site import ALWAYS

LIMIT_S = 240
Server = PostgresServer | RedisServer
Away = tuple[Server, str]


@pytest.fixture(params=["postgresql", "redis"])
def away(request: pytest.FixtureRequest) -> Iterator[Away]:
    """Run a server that keeps acknowledged writes; yield it and the URL of a store there."""
    if request.param == "redis":
        with made(lambda: RedisServer(ALWAYS)) as server:
            yield server, f"{server.url}?patience_ms=300"
        return
    with made(PostgresServer) as server, fresh_database(server.url) as url:
        yield server, f"{url}{'&' if '?' in url else '?'}patience_ms=300"


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[Rig]:
    async with serving(url, tokens=False, open_here=True) as rig:
        yield rig


async def until(holds: Callable[[httpx.Response], bool], rig: Rig, path: str) -> httpx.Response:
    """Repeat a request until the reply is as wanted."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            reply = await rig.call(None, "GET", path)
            if holds(reply):
                return reply
            await pause(0.02)


async def test_requests_fail_during_an_outage_and_work_afterwards(away: Away):
    server, url = away
    async with watched(url) as rig:
        before = await rig.send(None, lane="mail")
        server.kill()
        red = await until(lambda one: one.status_code == 503, rig, "/readyz")
        assert red.headers["content-type"] == "application/problem+json"
        assert (await rig.call(None, "GET", "/healthz")).status_code == 200
        for method, path, body in (
            ("POST", "/v1/jobs", {"kind": "noop"}),
            ("GET", "/v1/stats", None),
            ("POST", "/v1/claims", {"worker": "w", "lanes": "mail"}),
        ):
            reply = await rig.call(None, method, path, body)
            assert reply.status_code == 503, (path, reply.text)
            assert reply.headers["content-type"] == "application/problem+json"
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.json()["code"] in {"store_unavailable", "outcome_unknown"}
        server.start()
        await until(lambda one: one.status_code == 200, rig, "/readyz")
        claimed = await rig.call(None, "POST", "/v1/claims", {"worker": "w", "lanes": "mail"})
        assert [job["id"] for job in claimed.json()["jobs"]] == [before]


async def test_long_poll_survives_an_outage_and_gets_the_next_job(away: Away):
    server, url = away
    async with watched(url) as rig:
        ask = {"worker": "w", "lanes": "mail", "wait": "40s"}
        polling = asyncio.create_task(rig.call(None, "POST", "/v1/claims", ask))
        async with asyncio.timeout(LIMIT_S):
            while not rig.service.long_polls.waiting_for("mail"):
                await pause(0.01)
        server.kill()
        await until(lambda one: one.status_code == 503, rig, "/readyz")
        server.start()
        await until(lambda one: one.status_code == 200, rig, "/readyz")
        sent = await rig.send(None, lane="mail")
        reply = await polling
        if reply.status_code == 503:
            # It was claiming when the store became unreachable: it got an error, so it tries again.
            reply = await rig.call(None, "POST", "/v1/claims", ask)
        assert [job["id"] for job in reply.json()["jobs"]] == [sent]
