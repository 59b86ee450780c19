"""What no honest client sends: it is refused or borne, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.contract.tokens import Role
from headway.server.listening import connection
from headway.server.listening.connection import MOST_HEAD
from tests.server.problems import problem
from tests.server.rig import Rig, serving

LIMIT_S = 20
JSON = "Content-Type: application/json\r\n"
ONE = '{"kind":"noop"}'
MIB = 1024 * 1024


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as rig:
        yield rig


async def opened(rig: Rig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = rig.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def tell(rig: Rig, *parts: str | bytes) -> bytes:
    """Sends bytes on a connection of their own; what comes back until the server closes it."""
    reader, writer = await opened(rig)
    try:
        async with asyncio.timeout(LIMIT_S):
            for part in parts:
                writer.write(part if isinstance(part, bytes) else part.encode("latin-1"))
                await writer.drain()
            return await reader.read()
    except (ConnectionResetError, BrokenPipeError):
        return b""
    finally:
        writer.close()


async def flood(writer: asyncio.StreamWriter, piece: bytes) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            writer.write(piece)
            await writer.drain()


def posted(rig: Rig, *headers: str, body: str = ONE) -> str:
    told = "".join(f"{one}\r\n" for one in headers)
    return (
        "POST /v1/jobs HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
        f"Authorization: Bearer {rig.tokens[Role.PRODUCER]}\r\n"
        f"Content-Length: {len(body)}\r\n{told}\r\n{body}"
    )


async def jobs(rig: Rig) -> int:
    return len((await rig.ask(Role.VIEWER, "/v1/jobs"))["rows"])


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (("Content-Type: application/json",), 201),
        (("Content-Type: application/json", "Content-Encoding: identity"), 201),
        (("Content-Type: application/json", "Content-Encoding: gzip"), 415),
        (("Content-Type: application/json", "Content-Encoding: br, gzip"), 415),
        (("Content-Type: application/json", "Content-Type: text/plain"), 400),
        (("Content-Type: application/json", "Authorization: Bearer x"), 400),
        (("Content-Type: application/json", "Idempotency-Key: a", "Idempotency-Key: b"), 400),
        (("Content-Type: application/json", "Host: there"), 400),
        (("Content-Type: application/json", "Content-Length: 3"), 400),
        (("Content-Type: application/json", "Transfer-Encoding: chunked"), 400),
        (("Content-Type: application/json", "Origin: http://["), 403),
        (("Content-Type: application/json", "Origin: null"), 403),
        (("Content-Type: application/json", "X: a\r\n folded"), 400),
    ],
)
async def test_headers_that_decide_something_have_one_meaning(
    rig: Rig, headers: tuple[str, ...], status: int
) -> None:
    reply = await tell(rig, posted(rig, *headers))
    assert reply.startswith(b"HTTP/1.1 %d " % status), reply
    assert await jobs(rig) == (status == 201)


async def test_a_page_without_a_host_is_no_page_of_ours(rig: Rig) -> None:
    reply = await tell(rig, posted(rig, JSON.strip(), "Origin: null").replace("Host: here\r\n", ""))
    assert reply.startswith(b"HTTP/1.1 403 "), reply


@pytest.mark.parametrize("path", ["/v1/jobs/", "//v1/jobs", "/v1/../v1/jobs", "/v1/jobs//"])
async def test_no_path_is_redirected_or_mended(rig: Rig, path: str) -> None:
    said = posted(rig, JSON.strip()).replace("/v1/jobs", path, 1)
    reply = await tell(rig, said.replace("Host: here", "Host: there.example"))
    assert reply.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 405 ")), reply
    assert b"there.example" not in reply
    assert await jobs(rig) == 0


@pytest.mark.parametrize("after", ["", "Authorization: Bearer hw_0\r\n"])
async def test_a_head_that_does_not_end_is_cut_off(rig: Rig, after: str) -> None:
    before = resident()
    piece = "a" * MIB
    reply = await tell(rig, f"GET /v1/me HTTP/1.1\r\nHost: here\r\n{after}X: ", *[piece] * 64)
    assert not reply or reply.startswith(b"HTTP/1.1 431 ")
    many = "".join(f"x{n}: 1\r\n" for n in range(100_000))
    reply = await tell(rig, f"GET /v1/me HTTP/1.1\r\nHost: here\r\n{after}", *[many] * 16, "\r\n")
    assert not reply or reply.startswith(b"HTTP/1.1 431 ")
    assert resident() - before < 32 * MIB
    assert await rig.ask(None, "/healthz") == {"status": "ok"}


async def test_the_largest_head_passes_and_one_that_is_larger_is_refused(rig: Rig) -> None:
    for size, status in ((MOST_HEAD - 500, 401), (MOST_HEAD + 1, 431)):
        text = f"GET /v1/me HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX: {'a' * size}\r\n\r\n"
        reply = await tell(rig, text)
        assert reply.startswith(b"HTTP/1.1 %d " % status), reply
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["status"] == status


@pytest.mark.parametrize(
    "endless",
    [b"c;" + b"x" * (4 * MIB), b"0\r\n" + b"X: y\r\n" * MIB],
    ids=["extension", "trailers"],
)
async def test_what_stands_beside_a_body_is_bounded_too(rig: Rig, endless: bytes) -> None:
    before = resident()
    head = "POST /v1/jobs HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    for token in ("", f"Authorization: Bearer {rig.tokens[Role.PRODUCER]}\r\n"):
        said = head.replace("Host: here\r\n", f"Host: here\r\n{token}")
        reply = await tell(rig, said.encode() + endless, endless)
        assert not reply.startswith(b"HTTP/1.1 2")
    assert resident() - before < 64 * MIB


async def test_many_requests_in_a_row_are_all_answered(rig: Rig) -> None:
    one = "GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
    last = "GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    reply = await tell(rig, one * 3_000 + last)
    assert reply.count(b"HTTP/1.1 200 ") == 3_001


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /v1/me HT", b"\r\n", b"GET /v1/me HTTP/1.1\r\nHost: here\r\n"],
    ids=["nothing", "a line", "an empty line", "half a head"],
)
async def test_a_client_that_sends_no_request_is_sent_away(
    rig: Rig, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_WITHIN_S", 0.2)
    assert await tell(rig, begun) == b""


async def test_a_client_that_sends_a_byte_now_and_then_is_sent_away_all_the_same(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_WITHIN_S", 0.2)
    reader, writer = await opened(rig)
    closed = asyncio.create_task(reader.read())
    writer.write(b"GET /v1/me HTTP/1.1\r\nX: ")
    async with asyncio.timeout(LIMIT_S):
        while not closed.done():
            writer.write(b"a")
            await asyncio.wait((closed,), timeout=0.02)
    writer.close()


async def test_a_client_that_reads_nothing_is_sent_away(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_WITHIN_S", 0.2)
    await rig.send(args={"a": "x" * 900_000})
    _, writer = await opened(rig)
    token = rig.tokens[Role.VIEWER]
    one = f"GET /v1/jobs HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token}\r\n\r\n"
    # Replies that nobody reads fill what the system keeps for them.
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await flood(writer, one.encode() * 20)
    writer.close()
    assert await rig.ask(None, "/healthz") == {"status": "ok"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs", {f"k{n}": 1 for n in range(300_000)}),
        ("/v1/jobs", [{f"k{n}": 1 for n in range(60)}] * 9_000),
        ("/v1/jobs", {"kind": "x", "gates": [{"k": 1}] * 300_000}),
        ("/v1/claims", {"worker": "w", "lanes": [{"k": 1}] * 300_000}),
        (
            "/v1/claims",
            {"worker": "w", "lanes": "a", "after": {f"k{n}": "" for n in range(300_000)}},
        ),
        ("/v1/settlements", {"worker": "w", "outcomes": [{"outcome": "failed"}] * 300_000}),
        ("/v1/moves", {"verb": "cancel", "ids": [1] * 300_000}),
        ("/v1/leases", {"worker": "w", "running": [1] * 300_000}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
async def test_a_body_of_nothing_but_faults_is_told_a_few(
    rig: Rig, path: str, body: object
) -> None:
    told = problem(await rig.call(Role.ADMIN, "POST", path, body), 422, "invalid_value")
    assert 1 <= len(told["errors"]) <= 100


@pytest.mark.parametrize(
    "args",
    ["NaN", "1e999", "-1e999", "1" + "0" * 5_000, '"\\ud800"', "[" * 100_000 + "]" * 100_000],
    ids=["nan", "inf", "-inf", "long", "surrogate", "deep"],
)
@pytest.mark.parametrize("more", ["", "; charset=utf-8"])
async def test_what_is_no_json_for_all_is_none(rig: Rig, args: str, more: str) -> None:
    reply = await rig.http.post(
        "/v1/jobs",
        content=f'{{"kind":"noop","args":{{"a":{args}}}}}',
        headers={
            "Authorization": f"Bearer {rig.tokens[Role.PRODUCER]}",
            "Content-Type": f"application/json{more}",
        },
    )
    problem(reply, 400, "invalid_value")
    assert await jobs(rig) == 0
