"""Requests that no honest client sends are refused or tolerated, without delaying other clients."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Response
from pydantic import AfterValidator, TypeAdapter

from headway.contract.definitions import Role
from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.runtime.timing import REAL
from headway.server import listener as connection
from headway.server import service as services
from headway.server import strict_json
from headway.server.access import public
from headway.server.bodies import base as body_models
from headway.server.bodies.base import SLICE, Body
from headway.server.bodies.jobs import JobBody, OneOrMany
from headway.server.caller import OPEN_CALLER
from headway.server.listener import MOST_HEAD
from headway.server.routing import router
from headway.server.sending import make_jobs
from headway.server.strict_json import (
    INLINE,
    MOST_LISTED,
    MOST_VALUES,
    read_json,
    run_in_steps,
    yield_to_loop,
)
from tests.server.problems import problem
from tests.server.rig import Rig, serving

LIMIT_S = 240
"""How long a reply may take on a machine that is busy with other work."""
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


async def send_bytes(rig: Rig, *parts: str | bytes) -> bytes:
    """Send bytes on a separate connection; return the reply up to the server's close."""
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
async def test_decisive_headers_have_one_meaning(
    rig: Rig, headers: tuple[str, ...], status: int
) -> None:
    reply = await send_bytes(rig, posted(rig, *headers))
    assert reply.startswith(b"HTTP/1.1 %d " % status), reply
    assert await jobs(rig) == (status == 201)


@pytest.mark.parametrize(
    ("version", "headers", "status"),
    [
        ("1.1", (), 400),
        ("1.1", ("Origin: null",), 400),
        ("1.0", (), 201),
        ("1.0", ("Origin: null",), 403),
    ],
)
async def test_request_without_a_host_is_refused_unless_it_is_http_1_0(
    rig: Rig, version: str, headers: tuple[str, ...], status: int
) -> None:
    said = posted(rig, JSON.strip(), *headers).replace("Host: here\r\n", "")
    reply = await send_bytes(rig, said.replace("HTTP/1.1", f"HTTP/{version}"))
    assert reply.startswith(b"HTTP/1.1 %d " % status), reply
    assert await jobs(rig) == (status == 201)


@pytest.mark.parametrize("path", ["/v1/jobs/", "//v1/jobs", "/v1/../v1/jobs", "/v1/jobs//"])
async def test_no_path_is_redirected_or_corrected(rig: Rig, path: str) -> None:
    said = posted(rig, JSON.strip()).replace("/v1/jobs", path, 1)
    reply = await send_bytes(rig, said.replace("Host: here", "Host: there.example"))
    assert reply.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 405 ")), reply
    assert b"there.example" not in reply
    assert await jobs(rig) == 0


@pytest.mark.parametrize("after", ["", "Authorization: Bearer hw_0\r\n"])
async def test_endless_head_is_cut_off(rig: Rig, after: str) -> None:
    before = resident()
    piece = "a" * MIB
    reply = await send_bytes(rig, f"GET /v1/me HTTP/1.1\r\nHost: here\r\n{after}X: ", *[piece] * 64)
    assert not reply or reply.startswith(b"HTTP/1.1 431 ")
    many = "".join(f"x{n}: 1\r\n" for n in range(100_000))
    reply = await send_bytes(
        rig, f"GET /v1/me HTTP/1.1\r\nHost: here\r\n{after}", *[many] * 16, "\r\n"
    )
    assert not reply or reply.startswith(b"HTTP/1.1 431 ")
    assert resident() - before < 32 * MIB
    assert await rig.ask(None, "/healthz") == {"status": "ok"}


async def test_largest_head_is_accepted_and_a_larger_one_refused(rig: Rig) -> None:
    for size, status in ((MOST_HEAD - 500, 401), (MOST_HEAD + 1, 431)):
        text = f"GET /v1/me HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX: {'a' * size}\r\n\r\n"
        reply = await send_bytes(rig, text)
        assert reply.startswith(b"HTTP/1.1 %d " % status), reply
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["status"] == status


@pytest.mark.parametrize(
    "endless",
    [b"c;" + b"x" * (4 * MIB), b"0\r\n" + b"X: y\r\n" * MIB],
    ids=["extension", "trailers"],
)
async def test_everything_beside_a_body_is_bounded_too(rig: Rig, endless: bytes) -> None:
    before = resident()
    head = "POST /v1/jobs HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    for token in ("", f"Authorization: Bearer {rig.tokens[Role.PRODUCER]}\r\n"):
        said = head.replace("Host: here\r\n", f"Host: here\r\n{token}")
        reply = await send_bytes(rig, said.encode() + endless, endless)
        assert not reply.startswith(b"HTTP/1.1 2")
    assert resident() - before < 64 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("offered", ["h2c", "websocket", "h2c, foo/1"])
@pytest.mark.parametrize("cut", [0, 30, -len(ONE), -3])
async def test_offer_of_another_protocol_is_ignored_and_the_body_is_read(
    rig: Rig, offered: str, cut: int
) -> None:
    # As Java's HttpClient sends it with each request, and in more than one packet.
    offer = posted(rig, JSON.rstrip(), f"Upgrade: {offered}", "HTTP2-Settings: AAMAAABkAAQ")
    offers = 2 * offer.replace("Connection: close", "Connection: Upgrade, HTTP2-Settings")
    reply = await send_bytes(rig, offers[:cut], offers[cut:] + posted(rig, JSON.rstrip()))
    assert reply.count(b"HTTP/1.1 201 ") == reply.count(b"HTTP/1.1 ") == 3, reply
    assert await jobs(rig) == 3


async def test_data_after_a_refused_tunnel_is_the_next_request(rig: Rig) -> None:
    tunnel = "CONNECT /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
    reply = await send_bytes(rig, tunnel + posted(rig, JSON.rstrip()))
    assert reply.startswith(b"HTTP/1.1 405 "), reply
    assert await jobs(rig) == 1


async def test_many_requests_in_a_row_are_all_answered(rig: Rig) -> None:
    one = "GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
    last = "GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    reply = await send_bytes(rig, one * 3_000 + last)
    assert reply.count(b"HTTP/1.1 200 ") == 3_001


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /v1/me HT", b"\r\n", b"GET /v1/me HTTP/1.1\r\nHost: here\r\n"],
    ids=["nothing", "a line", "an empty line", "half a head"],
)
async def test_client_that_sends_no_request_is_disconnected(
    rig: Rig, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_WITHIN_S", 0.2)
    assert await send_bytes(rig, begun) == b""


async def test_client_that_sends_a_byte_now_and_then_is_disconnected(
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


async def test_client_that_reads_nothing_is_disconnected(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_WITHIN_S", 0.2)
    await rig.send(args={"a": "x" * 900_000})
    _, writer = await opened(rig)
    token = rig.tokens[Role.VIEWER]
    one = f"GET /v1/jobs HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token}\r\n\r\n"
    # Unread replies fill the socket buffers of the operating system.
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await flood(writer, one.encode() * 20)
    writer.close()
    assert await rig.ask(None, "/healthz") == {"status": "ok"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs", {f"k{n}": 1 for n in range(40_000)}),
        ("/v1/jobs", [{f"k{n}": 1 for n in range(60)}] * 8_000),
        ("/v1/jobs", {"kind": "x", "gates": [{"k": 1}] * 30_000}),
        ("/v1/claims", {"worker": "w", "lanes": [{"k": 1}] * 30_000}),
        (
            "/v1/claims",
            {"worker": "w", "lanes": "a", "after": {f"k{n}": "" for n in range(40_000)}},
        ),
        ("/v1/settlements", {"worker": "w", "outcomes": [{"outcome": "failed"}] * 30_000}),
        ("/v1/moves", {"verb": "cancel", "ids": [1] * 90_000}),
        ("/v1/leases", {"worker": "w", "running": [1] * 90_000}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
async def test_body_full_of_faults_reports_only_a_few(rig: Rig, path: str, body: object) -> None:
    told = problem(await rig.call(Role.ADMIN, "POST", path, body), 422, "invalid_value")
    assert 1 <= len(told["errors"]) <= 100


@pytest.mark.parametrize(
    "args",
    ["NaN", "1e999", "-1e999", "1" + "0" * 5_000, '"\\ud800"', "[" * 50_000 + "]" * 50_000],
    ids=["nan", "inf", "-inf", "long", "surrogate", "deep"],
)
@pytest.mark.parametrize("more", ["", "; charset=utf-8"])
async def test_ambiguous_json_is_refused(rig: Rig, args: str, more: str) -> None:
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


HOSTILE = {
    "keys": b'{"a":{' + b",".join(b'"k%d":1' % n for n in range(MOST_VALUES // 2)) + b"}}",
    "lists": b"[" + b"[]," * MOST_LISTED + b"[]]",
    "lists in a field": b'{"a":[' + b"[]," * (MOST_VALUES // 2) + b"[]]}",
    "lists in an item": b'[{"a":[' + b"[]," * (MOST_VALUES // 2) + b"[]]}]",
    "objects": b'{"a":[' + b'{"k":0},' * (MOST_VALUES // 3 + 1) + b"{}]}",
    "numbers": b'{"a":[' + b"1," * MOST_VALUES + b"1]}",
    "strings": b'{"a":[' + b'"",' * MOST_VALUES + b'""]}',
    "behind escapes": b'{"a":["' + b'\\\\\\"' * 9 + b'",' + b"[]," * (MOST_VALUES // 2) + b"[]]}",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_body_of_too_many_values_is_refused_before_any_is_made(body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge, match="values"):
            read_json(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Copies and parts of the text; as Python values it would take twenty times its length.
    assert most < 18 * len(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"' + b"x,[{: " * MOST_VALUES + b'"}',
        b'{"a":"' + b'\\",\\\\' * MOST_VALUES + b'"}',
        b'{"a":[' + b"1," * (MOST_VALUES - 10) + b"1]}",
        b"[" + b",".join([b'{"a":[' + b"1," * 90 + b"1]}"] * 10_000) + b"]",
    ],
    ids=["text", "escapes", "numbers", "items"],
)
def test_body_within_the_limits_is_read_whatever_its_strings_contain(body: bytes) -> None:
    assert read_json(body) == json.loads(body)


@pytest.mark.parametrize("deep", [b"[" * 101 + b"]" * 101, b'{"a":' * 101 + b"1" + b"}" * 101])
def test_depth_is_bounded_and_brackets_in_strings_are_not_counted(deep: bytes) -> None:
    with pytest.raises(InvalidValue, match="more than 100 deep"):
        read_json(deep)
    with pytest.raises(InvalidValue, match="more than 100 deep"):
        read_json(b'{"a":[' + b"[]," * (INLINE // 2) + deep + b"]}")
    shallow = b'{"a":["' + b"[" * 1_000 + b'"' + b",[]" * 1_000 + b"]}"
    assert read_json(shallow) == json.loads(shallow)


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"a":1,"a":1}', "a"),
        (b'{"a":{"b":1,"c":[{"d":1,"d":2}]}}', "d"),
        (b'{"a":1,"\\u0061":2}', "a"),
        (b'{"a":"x:y","b":":","a":1}', "a"),
        (b"[" + b'{"n":1},' * 9_999 + b'{"key":1,"key":2}]', "key"),
    ],
)
def test_repeated_key_is_named(body: bytes, key: str) -> None:
    with pytest.raises(InvalidValue, match=f"the key {key!r} appears twice"):
        read_json(body)


@pytest.mark.parametrize("more", ["", "; charset=utf-8"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs", '{"kind":"noop","args":{},"args":{"a":1}}'),
        ("/v1/jobs/x/edit", '{"priority":1,"priority":2}'),
        ("/v1/signals/x:1", '{"event":"e","final":"dead","final":"succeeded"}'),
    ],
)
async def test_body_with_a_repeated_key_is_refused(
    rig: Rig, path: str, body: str, more: str
) -> None:
    headers = {
        "Authorization": f"Bearer {rig.tokens[Role.ADMIN]}",
        "Content-Type": f"application/json{more}",
    }
    reply = await rig.http.post(path, content=body, headers=headers)
    told = problem(reply, 400, "invalid_value")
    assert "appears twice" in told["detail"]
    assert told["errors"][0]["where"] == "body"


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/moves"])
async def test_body_of_too_many_values_is_answered_with_what_is_allowed(
    rig: Rig, path: str
) -> None:
    headers = {
        "Authorization": f"Bearer {rig.tokens[Role.ADMIN]}",
        "Content-Type": "application/json",
    }
    reply = await rig.http.post(path, content=HOSTILE["keys"], headers=headers)
    assert str(MOST_VALUES) in problem(reply, 413, "payload_too_large")["detail"]


def _thread(value: str) -> str:
    _threads.append(threading.get_ident())
    return value


_threads: list[int] = []


class ThreadBody(Body):
    """Records the thread in which it is validated."""

    text: Annotated[str, AfterValidator(_thread)]


async def test_large_body_is_validated_once_off_the_loop_and_a_small_one_in_it() -> None:
    class Probe:
        name = "probe"
        routers = (router("probe", prefix="/probe"),)

        async def start(self, service: Any) -> None: ...

    @Probe.routers[0].post("")
    async def probe(body: ThreadBody, caller: Annotated[Any, public()]) -> Response:
        return Response(str(len(body.text)))

    _threads.clear()
    async with serving(systems=[Probe()]) as rig:
        for size in (10, INLINE + 1):
            reply = await rig.call(None, "POST", "/probe", {"text": "x" * size})
            assert reply.text == str(size)
        wrong = {"text": "x" * (INLINE + 1), "other": 1}
        told = problem(await rig.call(None, "POST", "/probe", wrong), 422, "invalid_value")
        assert [one["where"] for one in told["errors"]] == ["body.other"]
    here = threading.get_ident()
    assert _threads[0] == here
    assert len(_threads) == 3
    assert here not in _threads[1:]


ITEM = b'{"kind":"noop","args":{"a":"' + b"x" * 400 + b'"}}'


@pytest.mark.parametrize(
    ("body", "steps"),
    [
        # Counted in slices, then decoded, validated and encoded as a whole.
        (b'{"kind":"noop","args":{"a":"' + b"x" * (40 * INLINE) + b'"}}', 40),
        (b'{"kind":"noop","args":{"a":"' + b'\\\\\\"' * (10 * INLINE) + b'"}}', 40),
        # Counted in slices, decoded in slices, and validated a fixed number of items at a time.
        (b"[" + b",".join([ITEM] * 8_000) + b"]", 2 * 8_000 * 400 // INLINE - 8 + 8_000 // SLICE),
    ],
    ids=["text", "escapes", "items"],
)
def test_large_body_is_read_in_steps_of_bounded_size(
    body: bytes, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[None] = []
    for module in (strict_json, body_models):
        monkeypatch.setattr(module, "yield_to_loop", lambda: turns.append(None))
    read = TypeAdapter(OneOrMany).validate_python(read_json(body))
    assert len(read) == 8_000 if isinstance(read, list) else read.kind == "noop"
    assert steps <= len(turns) <= 2 * steps + 2


async def test_loop_runs_between_two_steps_of_a_body() -> None:
    loop, order = asyncio.get_running_loop(), list[str]()

    def work() -> str:
        for _ in range(100):
            order.append("step")
            # Data that has arrived is read in one iteration and answered in the next.
            loop.call_soon_threadsafe(loop.call_soon, order.append, "others")
            yield_to_loop()
        return "read"

    assert await run_in_steps(work) == "read"
    assert order == ["step", "others"] * 100


async def test_body_of_a_disconnected_client_is_read_no_further() -> None:
    begun, ended = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        try:
            while True:
                yield_to_loop()
        finally:
            ended.set()

    reading = asyncio.create_task(run_in_steps(work))
    await begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await asyncio.to_thread(ended.wait, LIMIT_S)


@pytest.mark.parametrize("more", ["", "; charset=utf-8"])
async def test_large_list_is_answered_before_another_large_body_is_read(
    rig: Rig, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, held = rig.service.large_body, list[bool]()
    enqueue = rig.store.enqueue

    async def noted(jobs: Any) -> Any:
        held.append(large.locked())
        return await enqueue(jobs)

    monkeypatch.setattr(rig.store, "enqueue", noted)
    headers = {
        "Authorization": f"Bearer {rig.tokens[Role.PRODUCER]}",
        "Content-Type": f"application/json{more}",
    }
    one = b'{"kind":"noop","args":{"a":"' + b"x" * INLINE + b'"}}'
    wrong = b'{"kind":"","args":{"a":"' + b"x" * INLINE + b'"}}'
    for body, status, was_held in [
        (b"[" + one + b"]", 200, [True]),
        (one, 201, [False]),
        (b"[" + one + b"," + wrong + b"]", 422, []),
        (b"[" + one, 400, []),
    ]:
        held.clear()
        reply = await rig.http.post("/v1/jobs", content=body, headers=headers)
        assert (reply.status_code, held) == (status, was_held), reply.text
        assert not large.locked()


@pytest.mark.parametrize("place", [0, SLICE - 1, SLICE, 2 * SLICE + 1])
async def test_fault_in_a_long_list_has_its_place(rig: Rig, place: int) -> None:
    jobs: list[dict[str, Any]] = [{"kind": "noop"} for _ in range(3 * SLICE)]
    jobs[place] = {"kind": 7}
    told = problem(await rig.call(Role.PRODUCER, "POST", "/v1/jobs", jobs), 422, "invalid_value")
    assert [one["where"] for one in told["errors"]] == [f"body.{place}.kind"]


async def test_making_many_jobs_lets_others_run(rig: Rig) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await REAL.pause(0)
            turns += 1

    bodies = TypeAdapter(OneOrMany).validate_python([{"kind": "noop"}] * 1_000)
    assert isinstance(bodies, list)
    assert isinstance(bodies[0], JobBody)
    counting = asyncio.create_task(count())
    await make_jobs(rig.service, OPEN_CALLER, bodies)
    counting.cancel()
    assert turns >= 1_000 // services.A_TURN - 1


async def test_making_few_large_jobs_lets_others_run(rig: Rig) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await REAL.pause(0)
            turns += 1

    large = {"kind": "noop", "args": {"a": "x" * services.A_TURN_BYTES}}
    bodies = TypeAdapter(OneOrMany).validate_python([large] * 50)
    assert isinstance(bodies, list)
    counting = asyncio.create_task(count())
    await make_jobs(rig.service, OPEN_CALLER, bodies)
    counting.cancel()
    assert turns >= 50 - 1


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("%FF", 400),
        ("%80", 400),
        ("a%C3", 400),
        ("%F0%9F", 400),
        ("%EF%BF%BD", 200),
        ("%C3%A9", 200),
    ],
)
async def test_path_that_is_not_utf_8_is_refused(rig: Rig, name: str, status: int) -> None:
    reply = await send_bytes(
        rig,
        f"GET /v1/lanes/{name} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
        f"Authorization: Bearer {rig.tokens[Role.VIEWER]}\r\n\r\n",
    )
    assert reply.startswith(b"HTTP/1.1 %d " % status), reply
    assert (b"is not UTF-8" in reply) == (status == 400)


@pytest.mark.parametrize(
    ("lane", "status"),
    [
        ("%FF", 400),
        ("a%C3", 400),
        ("%EF%BF%BD", 200),
        ("%C3%A9+x", 200),
    ],
)
async def test_query_that_is_not_utf_8_is_refused(rig: Rig, lane: str, status: int) -> None:
    reply = await send_bytes(
        rig,
        f"GET /v1/jobs?lane={lane} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
        f"Authorization: Bearer {rig.tokens[Role.VIEWER]}\r\n\r\n",
    )
    assert reply.startswith(b"HTTP/1.1 %d " % status), reply
    assert (b"the query 'lane=" in reply and b"is not UTF-8" in reply) == (status == 400)
