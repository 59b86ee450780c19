"""A token that ends while its request is running: no more data or jobs are returned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from headway.contract.definitions import DefineRequest, RevokeToken, Role, SetToken
from headway.contract.views import TokensQuery
from headway.server import access as token_book
from tests.server.problems import problem
from tests.server.rig import Rig, serving

LIMIT_S = 120


@pytest.fixture(autouse=True)
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_book, "FRESH_S", -1.0)


async def revoke(rig: Rig, text: str) -> None:
    items = (RevokeToken(id=text.split("_")[1]),)
    await rig.store.define(DefineRequest(items=items, author="the test"))


async def narrow(rig: Rig, text: str) -> None:
    (view,) = await rig.store.read(TokensQuery(ids=(text.split("_")[1],)))
    spec = SetToken(
        spec=type(view.spec)(
            id=view.spec.id,
            name=view.spec.name,
            roles=view.spec.roles,
            secrets=view.spec.secrets,
            lanes=("others",),
        )
    )
    await rig.store.define(DefineRequest(items=(spec,), author="the test"))


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [(revoke, 401, "unauthenticated"), (narrow, 403, "forbidden")],
    ids=["revoked", "for other lanes"],
)
async def test_poll_whose_token_ended_meanwhile_gets_nothing(
    end: Callable[[Rig, str], Awaitable[None]], status: int, code: str
) -> None:
    async with serving() as rig, asyncio.timeout(LIMIT_S):
        text = await rig.token(Role.WORKER)
        body = {"worker": "w", "lanes": ["main"], "wait": "15s"}
        poll = asyncio.create_task(rig.call(text, "POST", "/v1/claims", body))
        while not len(rig.service.long_polls):
            await asyncio.wait((poll,), timeout=0.01)
        await end(rig, text)
        job = await rig.send()
        problem(await poll, status, code)
        await rig.service.long_polls.finish()
        assert (await rig.ask(Role.VIEWER, f"/v1/jobs/{job}"))["state"] == "waiting"


async def test_event_stream_ends_with_its_token() -> None:
    async with serving(events_each_s=0.02) as rig, asyncio.timeout(LIMIT_S):
        text = await rig.token(Role.VIEWER)
        headers = {"Authorization": f"Bearer {text}"}
        async with rig.http.stream("GET", "/events", headers=headers) as reply:
            lines = reply.aiter_lines()
            assert await anext(lines) == "event: whole"
            await revoke(rig, text)
            try:
                async for _ in lines:
                    pass
            except httpx.RemoteProtocolError as error:
                pytest.fail(f"the stream was torn: {error}")
        while len(rig.service.feed):
            await asyncio.wait((asyncio.ensure_future(rig.call(None, "GET", "/healthz")),))
