"""Many calls at once: a limited number is under way, over few connections."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

import headway as hw
from headway.client.address import read_address
from headway.client.calls import MOST_AT_ONCE, HttpCall, HttpCalls
from headway.client.transport import KEPT_CONNECTIONS
from tests.servers.certificates import self_signed

SEND = HttpCall(method="POST", path="/v1/jobs")
POLL = HttpCall(method="POST", path="/v1/claims", waits_s=60)


class Impatient(hw.Timing):
    """Limits no call, until `late` is set: from then on each is late at once."""

    late = False

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        del seconds
        return super().limit(0 if self.late else None)


class Held:
    """A server that replies to a request only when it may."""

    def __init__(self) -> None:
        self.paths: list[bytes] = []
        self.peers: set[object] = set()
        self.open = 0
        self.may_reply = asyncio.Event()
        self._changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.add(writer.get_extra_info("peername"))
        await self._note(1)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.paths.append(head.split()[1])
                await self._note(0)
                await self.may_reply.wait()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        await self._note(-1)

    async def _note(self, opened: int) -> None:
        self.open += opened
        async with self._changed:
            self._changed.notify_all()

    async def until(self, *, requests: int = 0, connections: int | None = None) -> None:
        async with self._changed:
            await self._changed.wait_for(
                lambda: len(self.paths) >= requests and connections in {None, self.open}
            )


@asynccontextmanager
async def holding(timing: hw.Timing | None = None) -> AsyncIterator[tuple[Held, HttpCalls]]:
    held = Held()
    async with await asyncio.start_server(held.serve, "127.0.0.1", 0) as server:
        address = read_address(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        calls = HttpCalls(address, timeout_s=60, timing=timing or hw.Timing())
        yield held, calls
        held.may_reply.set()
        await calls.close()
        await held.until(connections=0)


def started(calls: HttpCalls, number: int) -> list[asyncio.Task[object]]:
    return [asyncio.create_task(calls.ask(SEND)) for _ in range(number)]


async def test_calls_above_the_limit_wait_for_their_turn_and_long_polls_do_not() -> None:
    async with holding() as (held, calls):
        asked = started(calls, MOST_AT_ONCE + 10)
        await held.until(requests=MOST_AT_ONCE)
        poll = asyncio.create_task(calls.ask(POLL))
        await held.until(requests=MOST_AT_ONCE + 1)
        assert held.paths.count(b"/v1/jobs") == MOST_AT_ONCE
        assert b"/v1/claims" in held.paths
        held.may_reply.set()
        await asyncio.gather(poll, *asked)
        assert held.paths.count(b"/v1/jobs") == MOST_AT_ONCE + 10
        await held.until(connections=KEPT_CONNECTIONS)


async def test_call_that_gets_no_turn_in_time_was_not_sent() -> None:
    timing = Impatient()
    async with holding(timing) as (held, calls):
        asked = started(calls, MOST_AT_ONCE)
        await held.until(requests=MOST_AT_ONCE)
        timing.late = True
        with pytest.raises(hw.StoreUnavailable):
            await calls.ask(SEND)
        held.may_reply.set()
        await asyncio.gather(*asked)
        assert len(held.paths) == MOST_AT_ONCE


async def test_calls_after_each_other_use_one_connection() -> None:
    async with holding() as (held, calls):
        held.may_reply.set()
        for _ in range(3):
            await calls.ask(SEND)
        assert (len(held.paths), len(held.peers)) == (3, 1)


async def test_connection_of_a_cancelled_call_is_closed_and_not_used_again() -> None:
    async with holding() as (held, calls):
        (asked,) = started(calls, 1)
        await held.until(requests=1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        held.may_reply.set()
        await calls.ask(SEND)
        assert len(held.peers) == 2
        await held.until(connections=1)


async def test_certificate_authority_of_the_environment_is_trusted_on_loopback_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    # The tests keep the context that is made first.
    make_context = inspect.unwrap(httpx.create_ssl_context)
    monkeypatch.setattr(httpx, "create_ssl_context", make_context)
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(certificate, key)
    held = Held()
    held.may_reply.set()
    async with await asyncio.start_server(held.serve, "localhost", 0, ssl=secured) as server:
        port = server.sockets[0].getsockname()[1]
        address = read_address(f"https://localhost:{port}")
        calls = HttpCalls(address, timeout_s=60, timing=hw.Timing())
        assert (await calls.ask(SEND)).body == b"{}"
        await calls.close()
