"""A connection that cannot be used to fill the memory, or be kept for nothing.

Uvicorn bounds neither the head of a request nor the time that it may take, and what accumulates
in the parser costs the square of its length. All this happens before anybody knows who calls.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

MOST_HEAD = 65_536
"""Bytes of the request line and all headers; and of what stands between the parts of a body."""
HEAD_WITHIN_S = 20.0
"""Seconds for a head to arrive; and for the rest of a body whose reply was written already."""
READ_WITHIN_S = 60.0
"""Seconds in which a client must read something of what is written to it."""

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


class TooMuch(Exception):
    """The head is too large; the parser gives up."""


class Connection(HttpToolsProtocol):
    """A connection whose heads are bounded in bytes and time, and whose client must read."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._messages = 0
        self._fed = 0
        self._body = 0
        self._beside = 0
        self._head_limit: asyncio.TimerHandle | None = None
        self._read_limit: asyncio.TimerHandle | None = None
        self._is_too_much = False
        self._is_upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Expects a head."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expects nothing more."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._head_limit = _cancelled(self._head_limit)
        self._read_limit = _cancelled(self._read_limit)

    def data_received(self, data: bytes) -> None:
        """Takes what has arrived."""
        messages, body = self._messages, self._body
        self._fed = len(data)
        super().data_received(data)
        if self._is_upgraded:
            return
        if messages == self._messages:
            # What came with the end of another message is small enough as it is.
            self._beside += len(data) - (self._body - body)
            if self._beside > MOST_HEAD + 8 * self._body and not self.transport.is_closing():
                self._refuse()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            if self._head_limit is None:
                self._expect_head()
        elif self._head_limit is not None:
            self._head_limit = _cancelled(self._head_limit)

    def on_message_begin(self) -> None:
        """Begins to count."""
        super().on_message_begin()
        self._messages += 1
        self._body = self._beside = 0

    def on_headers_complete(self) -> None:
        """Lets a head pass.

        Raises:
            TooMuch: it is too large.
        """
        if self._beside + self._fed > MOST_HEAD:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MOST_HEAD:
                self._is_too_much = True
                raise TooMuch
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Counts what a body has."""
        self._body += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Lets the client come again, if it does so in time."""
        self._head_limit = _cancelled(self._head_limit)
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        """Leaves the connection to another protocol."""
        self._is_upgraded = True
        self._head_limit = _cancelled(self._head_limit)
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no request, or too much of one, and closes."""
        if self._is_too_much:
            self._refuse()
        else:
            super().send_400_response(msg)

    def pause_writing(self) -> None:
        """Waits for the client to read."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._read_limit = _cancelled(self._read_limit)

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
