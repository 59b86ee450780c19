"""A TCP proxy that fails on demand: between a client and a server, in its own thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from headway.server.listener import close_servers

Result = TypeVar("Result")

_CHUNK = 65_536
_LIMIT = 240.0
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(eq=False, slots=True)
class _Link:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    losing: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def reset(self) -> None:
        for end in (self.client, self.server):
            if end is not None:
                _reset(end)


class Proxy:
    """Forwards everything until a failure is requested; a context manager.

    Args:
        url: URL of the server behind it, with host and port.
        delay_s: seconds by which each request is delayed: the round trip of a network that is
            otherwise as fast as this machine.
        tls: speaks TLS to the clients, but not to the server; None for plain TCP.

    Attributes:
        url: URL of the proxy: the same except for host and port.
        cut: set when a reply was lost or cut off as requested.
    """

    def __init__(
        self, url: str, *, delay_s: float = 0.0, tls: ssl.SSLContext | None = None
    ) -> None:
        parts = urlsplit(url)
        self._tls = tls
        self._delay_s = delay_s
        self._target = (parts.hostname or "127.0.0.1", parts.port or 0)
        self._parts = parts
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="headway-proxy", daemon=True)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._bytes_left: int | None = None
        self._lose_after: Callable[[bytes], bool] | None = None
        self._look: Callable[[bytes], None] | None = None
        self._server: asyncio.Server | None = None
        self.port = 0
        self.cut = threading.Event()

    @property
    def url(self) -> str:
        user, at, _ = self._parts.netloc.rpartition("@")
        return urlunsplit(self._parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    @property
    def connections(self) -> int:
        """Return the number of connections that currently pass through it."""
        return sum(link.server is not None for link in self._links)

    def reset(self) -> None:
        """Reset all connections (RST); new ones pass."""
        self._do(self._reset())

    def refuse(self) -> None:
        """Reset all connections, and refuse new ones until `resume`."""
        self._do(self._refuse())

    def stall(self) -> None:
        """Hold back all data, in both directions, until `resume`, without an error."""
        self._do(self._stall())

    def resume(self) -> None:
        """Forward everything again, and cancel pending requests to lose or cut replies."""
        self._do(self._resume())

    def cut_after(self, reply_bytes: int) -> None:
        """Forward this many more bytes of replies, then reset that connection, once."""
        self._do(self._cut_after(reply_bytes))

    def lose_reply_to(self, asked: bytes | Callable[[bytes], bool]) -> None:
        """Forward the next matching request, and reset the connection when its reply arrives, once.

        The server has then carried out the request, but the client does not know.

        Args:
            asked: bytes contained in the request, such as b"COMMIT"; or a predicate on the bytes
                sent at once.
        """
        wanted = (lambda sent: asked in sent) if isinstance(asked, bytes) else asked
        self._do(self._lose(wanted))

    def show(self, look: Callable[[bytes], None] | None) -> None:
        """Pass all data from clients to a callback from now on, before it is forwarded.

        Args:
            look: called with each chunk of data in the proxy's thread; None to stop.
        """
        self._look = look

    def start(self) -> Self:
        """Listen on a free port of 127.0.0.1."""
        self._thread.start()
        self._do(self._listen())
        return self

    def stop(self) -> None:
        """Reset all connections and stop listening."""
        if self._thread.is_alive():
            self._do(self._shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_LIMIT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Runs in the thread

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LIMIT)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        if self._server is not None:
            await close_servers([self._server])
        self._refusing = True
        self._flowing.set()
        tasks = [task for link in self._links for task in link.tasks]
        await self._reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reset(self) -> None:
        for link in list(self._links):
            link.reset()
        self._links.clear()

    async def _refuse(self) -> None:
        self._refusing = True
        await self._reset()

    async def _stall(self) -> None:
        self._flowing.clear()

    async def _resume(self) -> None:
        self._refusing = False
        self._bytes_left = self._lose_after = None
        self._flowing.set()

    async def _cut_after(self, reply_bytes: int) -> None:
        self.cut.clear()
        self._bytes_left = reply_bytes

    async def _lose(self, wanted: Callable[[bytes], bool]) -> None:
        self.cut.clear()
        self._lose_after = wanted

    def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._refusing:
            _reset(client)
            return
        # Known before its task runs, so that it is reset even if that is cancelled before.
        link = _Link(client)
        self._links.add(link)
        link.tasks.append(asyncio.ensure_future(self._connect(link, reader)))

    async def _connect(self, link: _Link, reader: asyncio.StreamReader) -> None:
        try:
            replies, server = await asyncio.open_connection(*self._target)
        except OSError:
            self._links.discard(link)
            link.reset()
            return
        link.server = server
        if link not in self._links:
            link.reset()
            return
        for end in (link.client, server):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ways = [
            asyncio.ensure_future(
                self._carry_late(link, reader, server)
                if self._delay_s
                else self._carry(link, reader, server, self._request)
            ),
            asyncio.ensure_future(self._carry(link, replies, link.client, self._reply)),
        ]
        link.tasks += ways
        await asyncio.gather(*ways, return_exceptions=True)
        self._links.discard(link)
        link.reset()

    async def _carry(
        self,
        link: _Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        look: Callable[[_Link, bytes], bytes],
    ) -> None:
        try:
            while data := await reader.read(_CHUNK):
                await self._flowing.wait()
                writer.write(look(link, data))
                await writer.drain()
            # Only this direction is closed: the other side may still send data.
            writer.write_eof()
        except (OSError, RuntimeError):
            link.reset()

    async def _carry_late(
        self, link: _Link, reader: asyncio.StreamReader, server: asyncio.StreamWriter
    ) -> None:
        """Forward requests after the delay, in order.

        The delay of the whole round trip is here: half a millisecond is too short for an exact
        timer.
        """
        late: deque[bytes] = deque()

        def pass_one() -> None:
            # Timers that expire together run in any order, so each forwards the oldest data.
            data = late.popleft()
            if server.transport.is_closing():
                return
            if data:
                server.write(self._request(link, data))
            else:
                server.write_eof()

        try:
            while True:
                data = await reader.read(_CHUNK)
                await self._flowing.wait()
                late.append(data)
                self._loop.call_later(self._delay_s, pass_one)
                if not data:
                    return
        except (OSError, RuntimeError):
            link.reset()

    def _request(self, link: _Link, data: bytes) -> bytes:
        if self._look is not None:
            self._look(data)
        if self._lose_after is not None and self._lose_after(data):
            self._lose_after = None
            link.losing = True
        return data

    def _reply(self, link: _Link, data: bytes) -> bytes:
        if link.losing:
            self.cut.set()
            raise ConnectionResetError
        if self._bytes_left is not None:
            if len(data) >= self._bytes_left:
                link.client.write(data[: self._bytes_left])
                self._bytes_left = None
                self.cut.set()
                raise ConnectionResetError
            self._bytes_left -= len(data)
        return data


def _reset(end: asyncio.StreamWriter) -> None:
    plain = end.get_extra_info("socket")
    if plain is not None and not end.transport.is_closing():
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    end.transport.abort()
