"""Replies whose delivery is tracked, and whether the client is still connected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.runtime.timing import Timing

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client disconnected before the reply."""


class ClientWatch:
    """Watches a client; to be closed with the request, unless `during` raised.

    Args:
        receive: of the request, whose body has been read.
    """

    def __init__(self, receive: Receive) -> None:
        self._watch = asyncio.ensure_future(_until_gone(receive))

    @property
    def is_gone(self) -> bool:
        """Whether it went away."""
        return self._watch.done()

    async def during(
        self, work: Coroutine[Any, Any, Result], undo: Callable[[Result], None]
    ) -> Result:
        """Do something for as long as the client is there.

        Args:
            work: cancelled when the client goes.
            undo: called with the result of the work if it cannot be delivered.

        Returns:
            What the work brought.

        Raises:
            ClientGone: it went away first.
        """
        task = asyncio.ensure_future(work)
        is_answered = False
        try:
            await asyncio.wait((task, self._watch), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                result = task.result()
                is_answered = True
                return result
        finally:
            if not is_answered:
                self.close()
                await _end(task, undo)
        raise ClientGone

    def close(self) -> None:
        """End the watch."""
        self._watch.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _end(task: asyncio.Future[Result], undo: Callable[[Result], None]) -> None:
    """Cancel work; what it brought all the same is undone."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and task.exception() is None:
        undo(task.result())


TURNS = 3
"""Turns of the loop from reading the end of a connection until the watch of its client is done."""
WRITE_WITHIN = 20.0
"""Seconds for a reply to be written; shorter than the lease of what it hands out."""


class TrackedReply(Response):
    """A reply whose last byte is held back until the rest is written and the client still there.

    A client that has not had the last byte cannot take the reply for whole, so what it hands out
    can be given back. Once that byte is written, it counts as handed out: what a network loses
    after that no server sees.
    """

    def __init__(
        self,
        content: bytes,
        *,
        presence: ClientWatch,
        timing: Timing,
        unread: Callable[[], None],
        read: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make it.

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
        """Write it."""
        del scope, receive
        try:
            async with self._timing.limit(WRITE_WITHIN):
                await self._write(send)
        except (OSError, TimeoutError):
            # The connection is broken, or the client is gone: the missing byte shows the end.
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
        # say which. Nor does it say that it writes to a connection whose end it has just read.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        for _ in range(TURNS):
            await self._timing.pause(0)
        if self._presence.is_gone:
            return
        await send({"type": "http.response.body", "body": body[-1:], "more_body": False})
        self.is_whole = True
