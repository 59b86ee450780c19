"""A minimal HTTP/1.1 client, which is so cheap that the server is what is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

Next = Callable[[], bytes | None]
"""Returns the next request; None at the end."""
OnReply = Callable[[int, bytes], None]
"""Called with each reply's status and body."""


class HttpFailed(Exception):
    """A reply with an error status."""


class _Caller(asyncio.Protocol):
    """One connection: sends a request, waits for the reply, sends the next."""

    def __init__(self, following: Next, on_reply: OnReply) -> None:
        self._following = following
        self._on_reply = on_reply
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        headers = bytes(self._buffer[:head]).lower()
        at = headers.index(b"content-length:") + 15
        length = int(headers[at : headers.find(b"\r\n", at) if b"\r\n" in headers[at:] else None])
        if len(self._buffer) < head + 4 + length:
            return
        body = bytes(self._buffer[head + 4 : head + 4 + length])
        del self._buffer[: head + 4 + length]
        status = int(headers[9:12])
        if status >= 300:
            self._end(HttpFailed(f"{status}: {body[:300]!r}"))
            return
        try:
            self._on_reply(status, body)
        except Exception as error:  # noqa: BLE001  (raised in the caller)
            self._end(error)
            return
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or HttpFailed("the server closed the connection"))

    def _go_on(self) -> None:
        request = self._following()
        if request is None or self._transport is None:
            self._end(None)
        else:
            self._transport.write(request)

    def _end(self, error: Exception | None) -> None:
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
        if self._transport is not None:
            self._transport.close()


async def call_all(
    port: int, connections: int, following: Next, on_reply: OnReply = lambda _status, _body: None
) -> None:
    """Send requests over several connections at once until there are none left.

    Raises:
        HttpFailed: a reply had an error status.
    """
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: _Caller(following, on_reply), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(caller.done for _, caller in made))


def post(path: str, body: bytes) -> bytes:
    """Return a complete POST request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
