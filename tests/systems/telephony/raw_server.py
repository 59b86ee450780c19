"""The far end of a wire: a server on a raw socket, whose behaviour the test sets."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headway.runtime.timing import pause
from headway.server.listener import close_servers


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as received."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query)

    @property
    def form(self) -> dict[str, list[str]]:
        return parse_qs(self.body.decode(), keep_blank_values=True)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def basic(self) -> str:
        """Return the caller's credentials, as `user:password`."""
        scheme, _, rest = self.headers["authorization"].partition(" ")
        assert scheme == "Basic"
        return b64decode(rest).decode()


Act = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""The action of the far end once it has read a request."""


@dataclass(kw_only=True)
class RawServer:
    """A server that records the requests made to it.

    Attributes:
        url: URL where it listens.
        seen: the requests that were read completely, in order.
        acts: its actions, request by request; the last one repeats.
        links: number of connections made to it.
    """

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    links: int = 0

    def will(self, *acts: Act) -> None:
        self.acts = list(acts)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.links += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    self.seen.append(await _read(reader))
                    act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
                    await act(writer)
                    await writer.drain()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def raw_server(*acts: Act) -> AsyncIterator[RawServer]:
    """Run a far end on a free port until the block exits."""
    end = RawServer(acts=list(acts))
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(end.serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    end.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield end
    finally:
        await close_servers([server])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = (line.partition(": ") for line in head[1:] if line)
    headers = {name.lower(): value for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Seen(method=method, target=target, headers=headers, body=body)


def says(status: int, body: object = None, **headers: str) -> Act:
    """Answer; a body that is not a text is sent as JSON."""
    raw = body.encode() if isinstance(body, str) else b"" if body is None else _json(body)
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(raw)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*lines, "", ""]).encode() + raw)

    return act


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


async def hangs(_: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def hangs_up(writer: asyncio.StreamWriter) -> None:
    """Close the connection without a reply."""
    writer.close()


async def cuts(writer: asyncio.StreamWriter) -> None:
    """Close the connection in the middle of a reply that starts well."""
    writer.write(b'HTTP/1.1 201 Created\r\nContent-Length: 4000\r\n\r\n{"sid": "CA')
    await writer.drain()
    writer.close()


async def cuts_head(writer: asyncio.StreamWriter) -> None:
    """Close the connection in the middle of the reply's head."""
    writer.write(b"HTTP/1.1 201 Cre")
    await writer.drain()
    writer.close()


async def babbles(writer: asyncio.StreamWriter) -> None:
    """Answer with something that is not HTTP."""
    writer.write(b"\x00\x01 what? \r\n\r\n")
    await writer.drain()
    writer.close()


async def drips(writer: asyncio.StreamWriter) -> None:
    """Answer byte by byte, and never finish."""
    writer.write(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"1\r\n \r\n")
        await writer.drain()
        await pause(0)


async def floods(writer: asyncio.StreamWriter) -> None:
    """Answer without end, as fast as the client reads."""
    writer.write(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
        await writer.drain()
