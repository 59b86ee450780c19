from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from headway.runtime.timing import pause
from headway.server import listener as listening
from headway.server.listener import ListenAddress, Listener

REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def test_small_packets_of_a_reply_do_not_wait_for_each_other() -> None:
    # On a transport that asyncio does not recognise as TCP, Nagle's algorithm and delayed ACKs
    # delay each reply that is written in two parts by 40 ms.
    async def answers(*_: object) -> None: ...

    listener = Listener(answers, ListenAddress(port=0))
    listening: socket.socket = listener._socket
    set_at: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain = writer.get_extra_info("socket")
        set_at.set_result(plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(accepted, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await set_at
        writer.close()
        await writer.wait_closed()


class Replies:
    """An app whose replies end when the test says so.

    Attributes:
        asked: set once a request is in progress.
        may_end: lets all requests end.
        ended: how each request ended: "replied" or "cancelled".
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})
        self.ended.append("replied")


class Server:
    """A listener that runs, with one connection, whose client keeps it open."""

    def __init__(self, app: Replies, listener: Listener, running: asyncio.Task[None]) -> None:
        self.app, self.listener, self.running = app, listener, running
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def connect(self) -> None:
        address = self.listener._socket.getsockname()
        self.reader, self.writer = await asyncio.open_connection(*address)

    async def ask(self) -> None:
        """Send a request, and wait until it is in progress."""
        self.writer.write(REQUEST)
        await self.app.asked.wait()

    async def reply(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def turns(self) -> bool:
        """Let the loop turn; return whether the server has stopped."""
        for _ in range(200):
            await pause(0)
        return self.running.done()


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    app = Replies()
    listener = Listener(app, ListenAddress(port=0))
    running = asyncio.create_task(listener.run())
    await listener.answers()
    made = Server(app, listener, running)
    await made.connect()
    yield made
    made.writer.close()
    app.may_end.set()
    listener.stop(now=True)
    await running


@asynccontextmanager
async def no_timers() -> AsyncIterator[None]:
    """Let no timer fire that is started in the block."""
    loop = asyncio.get_running_loop()
    patch = pytest.MonkeyPatch()

    def never(at: float, call: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return asyncio.TimerHandle(at, call, args, loop, context)

    patch.setattr(loop, "call_at", never)
    try:
        yield
    finally:
        patch.undo()


async def test_stop_waits_for_no_timer(server: Server) -> None:
    server.app.may_end.set()
    await server.ask()
    await server.reply()
    async with no_timers():
        server.listener.stop()
        assert await server.turns()
    assert await server.reader.read() == b""


@pytest.mark.parametrize("turns", range(12))
async def test_connection_accepted_during_the_stop_is_closed(server: Server, turns: int) -> None:
    with socket.create_connection(server.listener._socket.getsockname()) as client:
        client.setblocking(False)
        for _ in range(turns):
            await pause(0)
        async with no_timers():
            server.listener.stop()
            assert await server.turns()
        with suppress(ConnectionResetError):  # it was not accepted any more
            assert client.recv(1) == b""


async def test_stop_ends_with_the_last_request_in_progress(server: Server) -> None:
    await server.ask()
    async with no_timers():
        server.listener.stop()
        assert not await server.turns()
        server.app.may_end.set()
        assert await server.turns()
    assert (await server.reply()).startswith(b"HTTP/1.1 204")
    assert await server.reader.read() == b""


async def test_stop_waits_for_a_request_whose_client_has_left(server: Server) -> None:
    await server.ask()
    server.writer.close()
    await server.writer.wait_closed()
    async with no_timers():
        server.listener.stop()
        assert not await server.turns()
        server.app.may_end.set()
        assert await server.turns()
    assert server.app.ended == ["replied"]


async def test_second_stop_waits_for_no_request(server: Server) -> None:
    await server.ask()
    async with no_timers():
        server.listener.stop()
        assert not await server.turns()
        server.listener.stop(now=True)
        assert await server.turns()
    assert server.app.ended == []


async def test_request_that_does_not_end_in_time_is_cancelled(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "GRACE_S", 0)
    await server.ask()
    server.listener.stop()
    await server.running
    await pause(0)
    assert server.app.ended == ["cancelled"]
    assert "cancelled requests 0 s after the stop: 1" in caplog.text


async def test_stop_is_woken_as_often_as_requests_and_connections_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a callback for each request at each wake-up, 1,000 did not end within the grace."""
    many = 20
    may_end = asyncio.Semaphore(0)
    asked = asyncio.Semaphore(0)

    async def reply(_scope: Any, _receive: Any, send: Any) -> None:
        asked.release()
        await may_end.acquire()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    listener = Listener(reply, ListenAddress(port=0))
    running = asyncio.create_task(listener.run())
    await listener.answers()
    address = listener._socket.getsockname()
    clients = [await asyncio.open_connection(*address) for _ in range(many)]
    for _, writer in clients:
        writer.write(REQUEST)
        await asked.acquire()
    listener.stop()
    changed = listener._server.server_state.changed
    woken = 0
    wake = changed.set

    def counted() -> None:
        nonlocal woken
        woken += 1
        wake()

    monkeypatch.setattr(changed, "set", counted)
    for reader, writer in clients:
        may_end.release()
        assert (await reader.read()).startswith(b"HTTP/1.1 204")
        writer.close()
    await running
    assert woken == 2 * many
