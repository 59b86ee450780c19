"""A reply that hands something out: it knows whether it was written whole to a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.runtime.timing import Timing
from headway.server.pulling.presence import Presence

WRITE_WITHIN = 20.0
"""Seconds for a reply to be written; shorter than the lease of what it hands out."""


class HandOut(Response):
    """A reply whose last byte is held back until the rest is written and the client still there.

    A client that has not had the last byte cannot take the reply for whole, so what it hands out
    can be given back. Once that byte is written, it counts as handed out: what a network loses
    after that no server sees.
    """

    def __init__(
        self,
        content: bytes,
        *,
        presence: Presence,
        timing: Timing,
        unread: Callable[[], None],
        read: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Makes it.

        Args:
            content: JSON.
            presence: of the client; closed when the reply has been written.
            timing: for the limit.
            unread: called if the reply was not written whole.
            read: called when it was.
        """
        super().__init__(content, media_type="application/json")
        self._presence = presence
        self._timing = timing
        self._unread = unread
        self._read = read
        self.is_whole = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Writes it."""
        del scope, receive
        try:
            async with self._timing.limit(WRITE_WITHIN):
                await self._write(send)
        except (OSError, TimeoutError):
            # The connection is broken, or nobody reads: a server tells its end by the missing byte.
            return
        finally:
            self._presence.close()
            if not self.is_whole:
                self._unread()
        if self.is_whole and self._read is not None:
            await self._read()

    async def _write(self, send: Send) -> None:
        body = bytes(self.body)
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await send({"type": "http.response.body", "body": body[:-1], "more_body": True})
        # A server waits here until the rest has been taken or the connection is gone, and does not
        # say which. The loop must have looked at the connection once since.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await self._timing.pause(0)
        if self._presence.is_gone:
            return
        await send({"type": "http.response.body", "body": body[-1:], "more_body": False})
        self.is_whole = True
