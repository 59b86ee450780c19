"""A link in an event loop: calls are sent as they come, and answered in their order."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import NamedTuple

import hiredis

from headway.stores.redis.link import CLOSED, Link, NotSentError, Reply, ReplyLostError

_CHUNK = 262_144
_STALE_AFTER = 0.005
"""Seconds of idleness after which a link is looked at before it is used."""


class _Pending(NamedTuple):
    """A call under way."""

    future: asyncio.Future[Reply]
    at: float


class LoopLink:
    """One link of one event loop; all its methods are called in that loop's thread.

    Args:
        link: connected; from now on used by this alone.
        timeout: seconds to wait for a reply.

    Attributes:
        dead: the connection has failed; another link is needed.
    """

    def __init__(self, link: Link, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._socket = link.socket
        self._reader = link.reader
        self._timeout = timeout
        self._pending: deque[_Pending] = deque()
        self._out: list[bytes] = []
        self._unsent = b""
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._received_at = self._loop.time()
        self._retired = False
        self.dead = False
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._receive)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where it lives."""
        return self._loop

    def call(self, payload: bytes) -> asyncio.Future[Reply]:
        """Send a packed command.

        Returns:
            What the reply will be: it may be a ReplyError.

        Raises:
            NotSentError: as the future's exception: the link failed before anything was sent.
            ReplyLostError: as the future's exception: it failed later.
        """
        loop = self._loop
        future: asyncio.Future[Reply] = loop.create_future()
        now = loop.time()
        idle = not self._pending and not self._unsent
        if idle and now - self._received_at > _STALE_AFTER:
            # The server may have gone while this loop was busy with other things.
            self._receive()
        if self.dead:
            future.set_exception(NotSentError("the connection was lost"))
            return future
        self._pending.append(_Pending(future, now))
        if idle:
            self._send(payload, fresh=True)
        else:
            # Calls of the same turn of the loop are sent together.
            self._out.append(payload)
            if not self._flushing:
                self._flushing = True
                loop.call_soon(self._flush)
        if self._timer is None:
            self._timer = loop.call_later(self._timeout, self._check_timeout)
        return future

    def _flush(self) -> None:
        self._flushing = False
        if self._out and not self.dead and not self._unsent:
            data = b"".join(self._out)
            self._out.clear()
            self._send(data)

    def _send(self, data: bytes, *, fresh: bool = False) -> None:
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        except OSError as error:
            self._fail(error, unsent=1 if fresh else 0)
            return
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._socket, self._send_more)

    def _send_more(self) -> None:
        data, self._unsent = self._unsent, b""
        self._loop.remove_writer(self._socket)
        self._send(data)
        if not self._unsent:
            self._flush()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
            self._reader.feed(data)
            if isinstance(self._socket, ssl.SSLSocket):
                while self._socket.pending():
                    self._reader.feed(self._socket.recv(_CHUNK))
            if not data:
                raise ConnectionResetError(CLOSED)
            self._received_at = self._loop.time()
            self._deliver_replies()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except (OSError, hiredis.ProtocolError) as error:
            self._fail(error)

    def _deliver_replies(self) -> None:
        gets, pending = self._reader.gets, self._pending
        while True:
            reply = gets()
            if reply is False:
                break
            future = pending.popleft().future
            # Its caller may have gone away.
            if not future.done():
                future.set_result(reply)
        if self._retired and not pending:
            self.close()

    def _check_timeout(self) -> None:
        self._timer = None
        if not self._pending:
            return
        left = self._pending[0].at + self._timeout - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_timeout)
        else:
            message = f"no reply within {self._timeout:g} s"
            self._fail(TimeoutError(message))

    def _fail(self, error: Exception, unsent: int = 0) -> None:
        reason = f"{self._link.address}: {error or type(error).__name__}"
        unsent += len(self._out)
        self._out.clear()
        self._disconnect()
        pending = list(self._pending)
        self._pending.clear()
        for place, one in enumerate(pending):
            if not one.future.done():
                sent = place < len(pending) - unsent
                one.future.set_exception((ReplyLostError if sent else NotSentError)(reason))

    def _disconnect(self) -> None:
        if self.dead:
            return
        self.dead = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            if self._unsent:
                self._loop.remove_writer(self._socket)
        self._unsent = b""
        self._link.close()

    def retire(self) -> None:
        """Release the connection as soon as the calls under way are answered."""
        self._retired = True
        if not self._pending:
            self.close()

    async def drain(self, limit: float) -> None:
        """Wait for the calls under way, but not forever.

        Args:
            limit: seconds.
        """
        if self._pending:
            await asyncio.wait([one.future for one in self._pending], timeout=limit)

    def close(self) -> None:
        """Release the connection; calls under way fail."""
        if not self.dead:
            self._fail(ConnectionResetError("the store was closed"))
