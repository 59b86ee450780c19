"""A link: one connection to a server, with replies in the order of the calls.

A `Link` blocks; a `LoopLink` belongs to an event loop. They use plain sockets and hiredis: a single
awaited call takes half as long as with a general client.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import hiredis

from headway.stores.redis.options import Address, Login, RedisOptions, Tls

_Word = str | bytes | int
Reply = Any
"""bytes, int, None, a list of these, or a ReplyError."""
ReplyError = hiredis.ReplyError

_CHUNK = 262_144
NAME = "headway"
"""Connection name in the server's client list."""
STALE_AFTER = 0.005
"""Seconds of idleness after which a link is checked before it is used."""
_CLOSED = "the server closed the connection"


class NotSentError(Exception):
    """The server is unreachable or refused the connection; nothing was sent."""


class ReplyLostError(Exception):
    """The connection failed after a call was sent; the server may have executed it."""


class Link:
    """One blocking connection.

    Args:
        account: login to use.
        database: number to select; 0 to skip.

    Raises:
        NotSentError: the server is unreachable.
        ReplyError: the server refused the login or the database.
    """

    __slots__ = ("address", "reader", "socket")

    def __init__(
        self, address: Address, options: RedisOptions, account: Login, database: int = 0
    ) -> None:
        self.address = address
        self.reader = hiredis.Reader()
        limit = options.timeout_ms / 1000
        try:
            self.socket = _connect(address, min(limit, max(0.05, options.patience_ms / 1000)))
            self.socket = _wrap(self.socket, address, options.tls)
            self.socket.settimeout(limit)
        except (OSError, ssl.SSLError) as error:
            message = f"{address}: {error}"
            raise NotSentError(message) from error
        try:
            self._greet(account, database)
        except ReplyLostError as error:
            self.close()
            raise NotSentError(*error.args) from error
        except BaseException:
            self.close()
            raise

    def _greet(self, account: Login, database: int) -> None:
        if account.password or account.username:
            who = (account.username,) if account.username else ()
            self.ask("AUTH", *who, account.password)
        if database:
            self.ask("SELECT", database)
        # Only for operators who list clients; a user without permission for it still works.
        self.call(packed("CLIENT", "SETNAME", NAME))

    def ask(self, *words: _Word) -> Reply:
        """Send a command and wait for its reply.

        Raises:
            ReplyError: the server refused the command.
            ReplyLostError: there was no reply.
        """
        reply = self.call(packed(*words))
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def call(self, payload: bytes) -> Reply:
        """Send one encoded command, and wait for its reply, which may be a ReplyError.

        Raises:
            ReplyLostError: there was no reply; the link must not be used again.
        """
        try:
            self.socket.sendall(payload)
            return self.receive()
        except (OSError, hiredis.ProtocolError) as error:
            message = f"{self.address}: {error or type(error).__name__}"
            raise ReplyLostError(message) from error

    def receive(self) -> Reply:
        """Wait for one reply or message.

        Raises:
            ConnectionResetError: the server closed the connection.
            OSError: the connection failed; TimeoutError if nothing arrived in time.
        """
        reader = self.reader
        while True:
            reply = reader.gets()
            if reply is not False:
                return reply
            data = self.socket.recv(_CHUNK)
            if not data:
                raise ConnectionResetError(_CLOSED)
            reader.feed(data)

    def is_stale(self) -> bool:
        """Return whether the server has closed an idle link, or sent unexpected data."""
        limit = self.socket.gettimeout()
        self.socket.settimeout(0)
        try:
            self.socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        finally:
            self.socket.settimeout(limit)
        return True

    def interrupt(self) -> None:
        """Interrupt another thread that waits on this link."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It is already closed.
            return

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def packed(*words: _Word) -> bytes:
    """Encode a command."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n%b" % (len(parts), packed_words(parts))


def packed_words(words: Iterable[bytes]) -> bytes:
    """Encode the words of a command, without their number."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def _connect(address: Address, limit: float) -> socket.socket:
    if address.path:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(limit)
            made.connect(address.path)
        except OSError:
            made.close()
            raise
        return made
    made = socket.create_connection((address.host, address.port), timeout=limit)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # So that the kernel detects a vanished peer while a subscriber listens.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    except OSError:
        made.close()
        raise
    return made


def _wrap(plain: socket.socket, address: Address, tls: Tls | None) -> socket.socket:
    if tls is None:
        return plain
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
        if tls.cert:
            context.load_cert_chain(tls.cert, tls.key or None)
        return context.wrap_socket(plain, server_hostname=address.host)
    except (OSError, ssl.SSLError):
        plain.close()
        raise


class _Pending(NamedTuple):
    """A call without a reply so far."""

    future: asyncio.Future[Reply]
    at: float


class LoopLink:
    """A link in an event loop, which pipelines calls. Call all methods on the loop's thread.

    Args:
        link: connected; must not be used by anything else.
        timeout: seconds to wait for a reply.

    Attributes:
        dead: whether the connection has failed, so that another link is needed.
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

    def call(self, payload: bytes) -> asyncio.Future[Reply]:
        """Send an encoded command.

        Returns:
            A future of the reply, which may be a ReplyError.

        Raises:
            NotSentError: in the future: the link failed before anything was sent.
            ReplyLostError: in the future: the link failed later.
        """
        loop = self._loop
        future: asyncio.Future[Reply] = loop.create_future()
        now = loop.time()
        idle = not self._pending and not self._unsent
        if idle and now - self._received_at > STALE_AFTER:
            # The server may have closed the connection while this loop was busy.
            self._receive()
        if self.dead:
            future.set_exception(NotSentError("the connection was lost"))
            return future
        self._pending.append(_Pending(future, now))
        if idle:
            self._send(payload, fresh=True)
        else:
            # Calls in the same iteration of the loop are sent together.
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
                raise ConnectionResetError(_CLOSED)
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
            # The caller may have been cancelled.
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
        """Close the connection as soon as pending calls have replies."""
        self._retired = True
        if not self._pending:
            self.close()

    async def drain(self, limit: float) -> None:
        """Wait for pending calls.

        Args:
            limit: timeout in seconds.
        """
        if self._pending:
            await asyncio.wait([one.future for one in self._pending], timeout=limit)

    def close(self) -> None:
        """Close the connection; pending calls fail."""
        if not self.dead:
            self._fail(ConnectionResetError("the store was closed"))
