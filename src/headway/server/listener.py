"""Listening: connections with limits in bytes and time, and a graceful stop.

Uvicorn limits neither the size nor the duration of a request head, and its parser's cost grows with
the square of the head's length; all of this happens before the caller is authenticated.

Its parser also takes what follows a head with Upgrade for another protocol, and so loses the body.
Java's HttpClient offers HTTP/2 in this way with each request. No other protocol is spoken here, so
the offer is ignored. Source: RFC 9110, section 7.8.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httptools
import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from headway.core.errors import InvalidValue
from headway.runtime.timing import REAL

MOST_HEAD = 65_536
"""Maximum size of the request line and headers, and of the overhead of chunks, in bytes."""
HEAD_WITHIN_S = 20.0
"""Seconds in which a head, or the rest of a body after its reply, must arrive."""
READ_WITHIN_S = 60.0
"""Seconds in which a client must read some of what is written to it."""

_TOO_LARGE = msgspec.json.encode(
    {
        "type": "/problems/head_too_large",
        "title": "head too large",
        "status": 431,
        "detail": f"the request line and the headers have more than {MOST_HEAD} bytes",
        "code": "head_too_large",
    }
)
_REFUSED = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/problem+json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_TOO_LARGE), _TOO_LARGE)
)


class HeadTooLarge(Exception):
    """The request head is too large; aborts the parser."""


class _Requests(set[asyncio.Task[None]]):
    """The requests in progress; each calls `discard` when it has ended."""

    def __init__(self, changed: asyncio.Event) -> None:
        super().__init__()
        self._changed = changed

    def discard(self, task: object, /) -> None:
        """Remove a request, and wake the server's stop."""
        super().discard(cast("asyncio.Task[None]", task))
        self._changed.set()


class WatchedState(ServerState):
    """Uvicorn's connections and requests.

    Attributes:
        changed: set when one has ended, and by `Listener.stop`.
        closed: whether new connections are closed at once: the server is stopping.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()
        self.closed = False
        self.tasks = _Requests(self.changed)


class BoundedConnection(HttpToolsProtocol):
    """A connection whose heads are bounded in bytes and time, and whose client must read."""

    def __init__(
        self,
        config: Config,
        server_state: WatchedState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._state = server_state
        self._messages = 0
        self._read_size = 0
        self._body = 0
        self._overhead = 0
        self._head_limit: asyncio.TimerHandle | None = None
        self._read_limit: asyncio.TimerHandle | None = None
        self._is_head_too_large = False
        self._offers_upgrade = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the timeout for a request head."""
        super().connection_made(transport)
        if self._state.closed:
            # The kernel accepted it before the stop, which did not see it among the others.
            transport.close()
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeouts."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._head_limit = _cancelled(self._head_limit)
        self._read_limit = _cancelled(self._read_limit)
        self._state.changed.set()

    def data_received(self, data: bytes) -> None:
        """Parse data, and limit the overhead of chunks and the time for a head."""
        messages, body = self._messages, self._body
        self._read_size = len(data)
        self._parse(data)
        if messages == self._messages:
            # Data that also starts a message is not counted: a single read is small enough.
            self._overhead += len(data) - (self._body - body)
            if self._overhead > MOST_HEAD + 8 * self._body and not self.transport.is_closing():
                self._refuse()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            if self._head_limit is None:
                self._expect_head()
        elif self._head_limit is not None:
            self._head_limit = _cancelled(self._head_limit)

    def on_message_begin(self) -> None:
        """Reset the counters."""
        super().on_message_begin()
        self._messages += 1
        self._body = self._overhead = 0

    def on_headers_complete(self) -> None:
        """Limit the size of a request head.

        Raises:
            HeadTooLarge: the head is too large.
        """
        parser = self.parser
        self._offers_upgrade = parser.should_upgrade() and parser.get_method() != b"CONNECT"
        if self._offers_upgrade:
            return
        if self._overhead + self._read_size > MOST_HEAD:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MOST_HEAD:
                self._is_head_too_large = True
                raise HeadTooLarge
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count the bytes of a body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body, unless the head is parsed again."""
        if not self._offers_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Cancel the timeout; the next request starts another."""
        self._head_limit = _cancelled(self._head_limit)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request or an oversized head, and close the connection."""
        if self._is_head_too_large:
            self._refuse()
        else:
            super().send_400_response(msg)

    def pause_writing(self) -> None:
        """Start the timeout for the client to read."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Cancel the timeout, because the client has read."""
        super().resume_writing()
        self._read_limit = _cancelled(self._read_limit)

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        left = [memoryview(data)]
        while left:
            part = left.pop()
            try:
                self.parser.feed_data(part)
            except httptools.HttpParserError:
                message = "Invalid HTTP request received."
                self.logger.warning(message)
                self.send_400_response(message)
                return
            except httptools.HttpParserUpgrade as upgrade:
                left.append(part[upgrade.args[0] :])
                if self._offers_upgrade:
                    left.append(memoryview(self._head_without_offer()))
                    self._restart_parser()

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        kept = [b"%s: %s\r\n" % one for one in self.headers if one[0] != b"upgrade"]
        head = self.parser.get_method(), self.url, version, b"".join(kept)
        return b"%s %s HTTP/%s\r\n%s\r\n" % head

    def _restart_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        # As Uvicorn does: a client may send the next request before the connection closes.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _expect_head(self) -> None:
        self._head_limit = self.loop.call_later(HEAD_WITHIN_S, self._give_up)

    def _expect_reading(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._read_limit = self.loop.call_later(READ_WITHIN_S, self._check_reading, size)

    def _check_reading(self, size: int) -> None:
        if self.transport.get_write_buffer_size() < size:
            self._expect_reading()
        else:
            self._give_up()

    def _give_up(self) -> None:
        self.transport.abort()

    def _refuse(self) -> None:
        self.transport.write(_REFUSED)
        self.transport.close()


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


_log = logging.getLogger("headway.server")

GRACE_S = 10
"""Seconds in which requests in progress may finish after a stop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListenAddress:
    """Where a server listens.

    Attributes:
        port: 0 for any free port.
        certificate: PEM file for TLS; None for plain HTTP.
        key: PEM file with the key of the certificate.
        trusted_proxies: addresses whose X-Forwarded-* headers are trusted.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    trusted_proxies: tuple[str, ...] = ()


class _Server(uvicorn.Server):
    """Uvicorn's server without signal handlers and without polling; the caller handles signals.

    Uvicorn checks every 100 ms whether it should stop, and then whether connections have ended.

    Attributes:
        answers: set once it accepts requests.
        stopping: set by `Listener.stop`.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state: WatchedState = WatchedState()
        self.answers = asyncio.Event()
        self.stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no handlers, because a worker in the same process needs the signals too."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and set `answers`."""
        await super().startup(sockets)
        self.answers.set()

    async def main_loop(self) -> None:
        """Renew the Date header of replies each second until the server stops."""
        while not await self.on_tick(0):
            await REAL.wait(self.stopping, 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, close idle connections, and wait for requests in progress."""
        await close_servers(self.servers)
        for one in sockets or ():
            one.close()
        state = self.server_state
        state.closed = True
        for connection in [*state.connections]:
            connection.shutdown()
        try:
            async with REAL.limit(GRACE_S):
                while (state.connections or state.tasks) and not self.force_exit:
                    state.changed.clear()
                    await state.changed.wait()
        except TimeoutError:
            _log.warning("cancelled requests %d s after the stop: %d", GRACE_S, len(state.tasks))
            for task in state.tasks:
                task.cancel()


async def close_servers(servers: Iterable[asyncio.Server]) -> None:
    """Close servers, without losing the connections that they are just accepting.

    After its `close`, a server of asyncio fails to take a connection that it has already accepted,
    and does not close it. https://github.com/python/cpython/issues/109564
    """
    for one in servers:
        for listening in one.sockets:
            one.get_loop().remove_reader(listening)
    await REAL.pause(0)
    for one in servers:
        one.close()


class Listener:
    """A server at an address.

    Attributes:
        url: base URL with the actual port.
    """

    def __init__(
        self, app: ASGIApp, address: ListenAddress, *, on_stop: Callable[[], None] = lambda: None
    ) -> None:
        """Bind the address; requests are not served before `run`.

        Raises:
            InvalidValue: the address cannot be bound.
        """
        self._socket = _bind(address)
        host = f"[{address.host}]" if ":" in address.host else address.host
        scheme = "https" if address.certificate else "http"
        self.url = f"{scheme}://{host}:{self._socket.getsockname()[1]}"
        self._server = _Server(
            uvicorn.Config(
                app,
                http=BoundedConnection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(address.trusted_proxies),
                forwarded_allow_ips=list(address.trusted_proxies),
                timeout_keep_alive=75,
                ssl_certfile=address.certificate,
                ssl_keyfile=address.key,
            )
        )
        self._on_stop = on_stop

    async def run(self) -> None:
        """Serve until `stop`, then until requests in progress finish or `GRACE_S` has passed."""
        await self._server.serve([self._socket])

    def stop(self, *, now: bool = False) -> None:
        """Stop the server, without waiting; with `now`, do not wait for requests in progress."""
        self._on_stop()
        self._server.should_exit = True
        self._server.force_exit = self._server.force_exit or now
        self._server.stopping.set()
        self._server.server_state.changed.set()

    async def answers(self) -> None:
        """Wait until the server accepts requests."""
        await self._server.answers.wait()


def _hint(error: OSError | OverflowError) -> str:
    match error:
        case OSError(errno=errno.EADDRINUSE):
            return "another program uses this port: pass another --port, or stop that program"
        case OSError(errno=errno.EACCES):
            return "ports below 1024 require privileges: pass another --port"
        case _:
            return "pass a --host that is a name or an address of this machine"


def _bind(address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # With an explicit protocol; otherwise asyncio does not set TCP_NODELAY.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or error
        message = f"the server cannot listen at {address.host}:{address.port}: {why}"
        raise InvalidValue(message, hint=_hint(error)) from None
    listening.set_inheritable(True)
    return listening
