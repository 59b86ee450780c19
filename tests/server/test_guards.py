"""Checks around every request: sizes, timeouts, browsers, ids, headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from headway.core.errors import TooManyRequests
from headway.runtime.timing import Timing
from headway.server.access import RateLimiter, needs
from headway.server.build import alive, build
from headway.server.caller import Caller, Permission
from headway.server.listener import ListenAddress, Listener
from headway.server.routing import router
from headway.server.service import ServerOptions, Service, System
from headway.stores import open_store

LIMIT_S = 120


class Echo(BaseModel):
    word: str


class Echoes:
    """A system with one route."""

    name = "echo"

    def __init__(self) -> None:
        routes = router("echo")

        async def echo(body: Echo, _: Annotated[Caller, needs(Permission.SEND)]) -> dict[str, str]:
            return {"word": body.word}

        routes.post("/echo")(echo)
        self.routers = [routes]

    async def start(self, service: Service) -> None:
        del service


@asynccontextmanager
async def serving(**options: object) -> AsyncIterator[str]:
    """Run a real server with that route; yield its address."""
    store = open_store("memory://")
    system: System = Echoes()
    chosen = ServerOptions(**{"open_here": True, "chores": False, **options})
    service = Service(store, chosen, timing=Timing())
    listener = Listener(build(service, [system]), ListenAddress(port=0), on_stop=service.begin_stop)
    async with alive(service, [system]):
        running = asyncio.create_task(listener.run())
        await listener.answers()
        try:
            yield listener.url
        finally:
            listener.stop()
            await running
    await store.close()


@asynccontextmanager
async def calling(**options: object) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(**options) as url,
        httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as client,
    ):
        yield client


def problem(reply: httpx.Response) -> tuple[int, str]:
    assert reply.headers["content-type"] == "application/problem+json"
    return reply.status_code, reply.json()["code"]


async def test_body_above_the_limit_is_refused_before_it_is_read():
    async with calling(max_body=1000) as client:
        reply = await client.post("/echo", content=b"x" * 2000)
        assert problem(reply) == (413, "payload_too_large")


async def test_body_without_a_length_is_refused_at_its_first_excess_byte():
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    async with calling(max_body=1000) as client:
        json_type = {"content-type": "application/json"}
        reply = await client.post("/echo", content=endless(), headers=json_type)
        assert problem(reply) == (413, "payload_too_large")


@pytest.mark.parametrize(
    ("limit", "length", "status"),
    [
        pytest.param({"max_body": 1000}, 1001, 413, id="too long"),
        pytest.param({"body_timeout_s": 0.05}, 10, 408, id="late"),
    ],
)
async def test_body_that_does_not_arrive_is_refused(
    limit: dict[str, object], length: int, status: int
):
    async with serving(**limit) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /echo HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % length
        )
        async with asyncio.timeout(LIMIT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(
    "body", [b'{"word": NaN}', b"[" * 100_000, b'{"word": "\xff"}', b"{", b'{"word": 1}{}']
)
async def test_body_that_is_not_json_is_refused_as_such(body: bytes):
    async with calling() as client:
        json_type = {"content-type": "application/json"}
        reply = await client.post("/echo", content=body, headers=json_type)
        assert problem(reply) == (400, "invalid_value")


async def test_body_can_be_nested_at_most_a_hundred_deep():
    async with calling() as client:
        json_type = {"content-type": "application/json"}
        for depth, status in ((100, 422), (101, 400)):
            body = b"[" * depth + b"]" * depth
            reply = await client.post("/echo", content=body, headers=json_type)
            assert problem(reply) == (status, "invalid_value"), depth
        many = b'{"word": [' + b",".join([b"{}"] * 500) + b"]}"
        assert (await client.post("/echo", content=many, headers=json_type)).status_code == 422


async def test_repeated_query_parameter_is_refused_unless_it_is_a_list():
    async with calling() as client:
        for query in ("kind=a&kind=b", "limit=5&limit=6", "cursor=1&newest=true&cursor=2"):
            assert problem(await client.get(f"/v1/jobs?{query}")) == (422, "invalid_value"), query
        assert (await client.get("/v1/jobs?state=dead&state=waiting")).status_code == 200
        assert (await client.get("/v1/lanes?name=a&name=b")).status_code == 200
        assert (await client.get("/v1/gates?name=a&name=b")).status_code == 200


async def test_body_of_another_type_is_not_read_as_json():
    async with calling() as client:
        plain = {"content-type": "text/plain"}
        reply = await client.post("/echo", content=b'{"word": "x"}', headers=plain)
        assert problem(reply) == (422, "invalid_value")


async def test_body_refused_by_the_model_is_reported_by_place_without_its_value():
    async with calling() as client:
        reply = await client.post("/echo", json={"word": {"secret": "canary"}})
        assert problem(reply) == (422, "invalid_value")
        assert reply.json()["errors"][0]["where"] == "body.word"
        assert "canary" not in reply.text


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"host": "evil.example"},
        {"host": ""},
    ],
)
async def test_request_from_a_page_of_another_site_is_refused(headers: dict[str, str]):
    async with calling(hosts=("127.0.0.1", "localhost")) as client:
        reply = await client.post("/echo", json={"word": "x"}, headers=headers)
        assert problem(reply) == (403, "forbidden")


@pytest.mark.parametrize("headers", [{}, {"sec-fetch-site": "same-origin"}])
async def test_programs_and_own_pages_are_accepted(headers: dict[str, str]):
    async with calling(hosts=("127.0.0.1", "localhost")) as client:
        reply = await client.post("/echo", json={"word": "x"}, headers=headers)
        assert (reply.status_code, reply.json()) == (200, {"word": "x"})


async def test_request_keeps_its_own_id_or_gets_one():
    async with calling() as client:
        own = await client.get("/nowhere", headers={"x-request-id": "mine-17"})
        assert own.headers["x-request-id"] == "mine-17"
        assert own.json()["instance"] == "/requests/mine-17"
        strange = await client.get("/nowhere", headers={"x-request-id": "a b\tc"})
        given = strange.headers["x-request-id"]
        assert given not in {"a b\tc", own.headers["x-request-id"]}


async def test_replies_are_neither_sniffed_nor_cached():
    async with calling() as client:
        headers = (await client.post("/echo", json={"word": "x"})).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers


async def test_reply_asks_a_too_frequent_caller_to_wait():
    async with calling(requests_per_s=2) as client:
        replies = [await client.post("/echo", json={"word": "x"}) for _ in range(8)]
        refused = [one for one in replies if one.status_code != 200]
        assert problem(refused[0]) == (429, "too_many_requests")
        assert int(refused[0].headers["retry-after"]) >= 1


async def test_requests_of_a_caller_never_use_up_the_rate_of_its_heartbeats():
    # One request, and the next after a quarter of an hour.
    async with calling(requests_per_s=0.001) as client:
        replies = [await client.post("/echo", json={"word": "x"}) for _ in range(2)]
        assert [one.status_code for one in replies] == [200, 429]
        kept = await client.post("/v1/leases", json={"worker": "w", "running": []})
        assert kept.status_code == 200


class Hand(Timing):
    """A clock that the test advances."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def test_refused_requests_use_up_nothing():
    clock = Hand()
    limiter = RateLimiter(2, clock)
    for _ in range(2):
        limiter.take("c", "shop")
    for _ in range(10):
        with pytest.raises(TooManyRequests):
            limiter.take("c", "shop")
    clock.now += 0.5
    limiter.take("c", "shop")


async def test_unknown_path_and_method_are_problems():
    async with calling() as client:
        assert problem(await client.get("/v1/nothing")) == (404, "unknown_path")
        assert problem(await client.delete("/echo")) == (405, "unknown_method")


def test_route_without_a_policy_is_refused_at_the_start():
    from headway.core.errors import InvariantBroken  # noqa: PLC0415

    open_door = Echoes()

    async def door() -> None: ...

    open_door.routers[0].get("/door")(door)
    with pytest.raises(InvariantBroken, match="/door"):
        build(Service(open_store("memory://"), ServerOptions()), [open_door])


def test_description_includes_problems_and_security():
    app: FastAPI = build(Service(open_store("memory://"), ServerOptions()), [Echoes()])
    said = json.dumps(app.openapi())
    assert "HTTPBearer" in said
    assert "#/components/schemas/Problem" in said
    assert "HTTPValidationError" not in said
