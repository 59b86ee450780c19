"""Server refusals become the matching errors; and which server addresses are accepted."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from subprocess import run

import pytest

import headway as hw
from headway.client.address import read_address
from headway.client.calls import error_of
from headway.contract.outcomes import Succeeded
from headway.contract.views import LanesQuery


def errors(of: type[hw.HeadwayError]) -> list[type[hw.HeadwayError]]:
    own = [of] if of.__module__ == hw.HeadwayError.__module__ else []
    return own + [one for kind in of.__subclasses__() for one in errors(kind)]


def problem(**members: object) -> bytes:
    return json.dumps(members).encode()


def read(status: int, body: bytes = b"", *, writes: bool = True) -> hw.HeadwayError:
    return error_of(status, body, what="POST /v1/jobs", writes=writes)


@pytest.mark.parametrize("kind", errors(hw.HeadwayError))
def test_each_error_code_is_raised_as_its_error(
    kind: type[hw.HeadwayError],
) -> None:
    error = read(422, problem(code=kind.code, detail="what is wrong", hint="how to fix it"))
    assert type(error) is kind
    assert (error.message, error.hint) == ("what is wrong", "how to fix it")


@pytest.mark.parametrize(
    ("status", "branch"),
    [
        (400, hw.CallerError),
        (401, hw.Unauthenticated),
        (403, hw.Forbidden),
        (409, hw.CallerError),
        (429, hw.TooManyRequests),
        (503, hw.StoreUnavailable),
        (504, hw.StoreError),
        (507, hw.StoreFull),
    ],
)
def test_unknown_code_is_raised_as_the_nearest_branch(
    status: int, branch: type[hw.HeadwayError]
) -> None:
    assert type(read(status, problem(code="of_tomorrow", detail="new"))) is branch


def test_server_bug_names_the_request_id_of_the_log() -> None:
    error = read(500, problem(code="bug", detail="unexpected", instance="/requests/17"))
    assert isinstance(error, hw.InvariantBroken)
    assert "/requests/17" in str(error)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"\xff", b'{"code": 7}'])
def test_reply_from_something_else_is_reported_by_its_status(body: bytes) -> None:
    assert type(read(502, body)) is hw.OutcomeUnknown
    assert type(read(502, body, writes=False)) is hw.StoreUnavailable
    assert type(read(503, body)) is hw.StoreUnavailable
    assert type(read(404, body)) is hw.CallerError
    assert type(read(302, body)) is hw.CallerError


@pytest.mark.parametrize(
    "body",
    [
        b'{"rows": [1], "cursor": null}',
        b"",
        b"null",
        b"[]",
        b"{}",
        b"7",
        b'"x"',
        b"<html>",
        b"\xff",
        b"[" * 100_000,
    ],
)
async def test_foreign_reply_is_reported_as_such_by_every_call(body: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if length := re.search(rb"(?i)content-length: (\d+)", head):
            # A connection that is closed with unread data is reset, and the reply may be lost.
            await reader.readexactly(int(length[1]))
        writer.write(b"HTTP/1.1 200 .\r\nContent-Length: %d\r\n" % len(body))
        writer.write(b"Connection: close\r\n\r\n" + body)
        writer.close()

    job = hw.App("memory://").kinds["noop"].make()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = hw.Client(url, patience="0s")
        for kind, call in [
            (hw.OutcomeUnknown, client.send_async("noop")),
            (hw.OutcomeUnknown, client.send_many_async([job])),
            (hw.OutcomeUnknown, client.signal_async("key", event="e", final="succeeded")),
            (hw.OutcomeUnknown, client.cancel_async(job.id)),
            (hw.OutcomeUnknown, client.settle_async("w", [Succeeded(job.id, 1)])),
            (hw.OutcomeUnknown, client.beat_async("w", [(job.id, 1)])),
            (hw.OutcomeUnknown, client.remote.release_permit("gate", job.id, "ann", "test")),
            (hw.StoreUnavailable, client.claim_async("w")),
            (hw.StoreUnavailable, client.jobs_async()),
            (hw.StoreUnavailable, client.read_async(LanesQuery())),
        ]:
            with pytest.raises(kind, match="cannot be read"):
                await call
        await client.close_async()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "ftp://host",
        "http://",
        "http://h:99999",
        "http://h?x=1",
        "http://h#x",
        "http://\udcff",
        "http://h..example",
    ],
)
def test_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(hw.InvalidValue):
        read_address(url)


@pytest.mark.parametrize("url", ["http://xn--a", "http://[v1.a]", "http://☃.net"])
async def test_address_that_the_http_library_refuses_is_refused_as_an_address(url: str) -> None:
    client = hw.Client(url, patience="0s")
    with pytest.raises(hw.InvalidValue, match="is not the URL of a server"):
        await client.jobs_async()
    await client.close_async()


def test_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(hw.InvalidValue) as refused:
        read_address("http://ada:s3cret@host")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("token", ["hw_a b", "hw_\n", "hw_é"])
def test_malformed_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(hw.InvalidValue) as refused:
        read_address("http://host", token)
    assert token not in str(refused.value)


def test_address_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_URL", "https://jobs.example.com/headway/")
    monkeypatch.setenv("HEADWAY_TOKEN", "hw_1_2")
    address = read_address()
    assert (address.url, address.token) == ("https://jobs.example.com/headway", "hw_1_2")
    assert "hw_1_2" not in repr(address)


@pytest.mark.parametrize(
    ("url", "is_open"),
    [
        ("http://127.0.0.1:1", False),
        ("http://[::1]:1", False),
        ("http://localhost", False),
        ("https://jobs.example.com", False),
        ("http://jobs.example.com", True),
    ],
)
def test_token_over_an_unencrypted_connection_is_detected(url: str, is_open: bool) -> None:
    assert read_address(url, "hw_1_2").is_open is is_open


def test_program_without_a_server_loads_no_http() -> None:
    look = "import headway, sys; headway.Client(); print('httpx' in sys.modules)"
    done = run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
