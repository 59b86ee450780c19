"""APNs as run by Apple: HTTP/2 over TLS on a free port, with answers set by the test."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from headway.server.listener import close_servers
from tests.servers.certificates import self_signed


@dataclass
class Push:
    """A request as received."""

    connection: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Act = Callable[["_Served", int, Push], None]


@dataclass
class ApnsServer:
    """A server that records the requests made to it.

    Attributes:
        certificate: its certificate, which a client must trust.
        acts: its actions, request by request; the last one repeats.
        got: requests that were read completely, in order.
        read_after_s: for how long incoming data is left unread, so that a client must wait.
        connections: number of connections made.
    """

    certificate: Path
    port: int = 0
    acts: list[Act] = field(default_factory=list)
    got: list[Push] = field(default_factory=list)
    read_after_s: float = 0
    connections: int = 0
    open: list[_Served] = field(default_factory=list)


class _Served(asyncio.Protocol):
    def __init__(self, server: ApnsServer) -> None:
        self.server = server
        self.streams: dict[int, Push] = {}
        self.conn = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        assert transport.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        self.transport = transport
        self.server.connections += 1
        self.server.open.append(self)
        self.number = self.server.connections
        self.conn.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        for event in self.conn.receive_data(data):
            if isinstance(event, RequestReceived):
                self.streams[event.stream_id] = Push(self.number, dict(event.headers))
            elif isinstance(event, DataReceived):
                self.streams[event.stream_id].body += event.data
                loop, size = asyncio.get_running_loop(), event.flow_controlled_length
                loop.call_later(self.server.read_after_s, self.read, size, event.stream_id)
            elif isinstance(event, StreamEnded):
                server, push = self.server, self.streams.pop(event.stream_id)
                server.got.append(push)
                act = server.acts.pop(0) if len(server.acts) > 1 else server.acts[0]
                act(self, event.stream_id, push)
        if not self.transport.is_closing():
            self.flush()

    def read(self, size: int, stream: int) -> None:
        if not self.transport.is_closing():
            self.conn.acknowledge_received_data(size, stream)
            self.flush()

    def flush(self) -> None:
        self.transport.write(self.conn.data_to_send())


def answers(status: int, reason: str = "") -> Act:
    """Answer as Apple does; a refusal without a reason has no body."""

    def act(served: _Served, stream: int, push: Push) -> None:
        headers = [(":status", str(status)), ("apns-id", push.headers["apns-id"])]
        served.conn.send_headers(stream, headers, end_stream=not reason)
        if reason:
            body = json.dumps({"reason": reason}).encode()
            served.conn.send_data(stream, body, end_stream=True)

    return act


def cuts(served: _Served, stream: int, push: Push) -> None:
    """Close the connection without an answer."""
    served.transport.abort()


def hangs(served: _Served, stream: int, push: Push) -> None:
    """Never answer."""


def says_goodbye(served: _Served, stream: int, push: Push) -> None:
    """Close the connection, and report that this request was not processed."""
    served.conn.close_connection(last_stream_id=max(stream - 2, 0))


def resets(code: int) -> Act:
    """Reset the request."""

    def act(served: _Served, stream: int, push: Push) -> None:
        served.conn.reset_stream(stream, code)

    return act


@asynccontextmanager
async def apns(folder: Path, *acts: Act) -> AsyncIterator[ApnsServer]:
    """Run a server on a free port until the block exits."""
    certificate, key = self_signed(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    made = ApnsServer(certificate, acts=list(acts) or [answers(200)])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Served(made), "127.0.0.1", 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        await close_servers([server])
        for one in made.open:
            one.transport.abort()
        await server.wait_closed()
