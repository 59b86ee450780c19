"""A link: one connection to a server, on which calls are answered in their order. Blocks.

Plain sockets under hiredis and nothing between: one call at a time, awaited, costs here half of
what it costs through a general client.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import Any

import hiredis

from headway.stores.redis.options import Account, Address, RedisOptions, Tls

Word = str | bytes | int
Reply = Any
"""bytes, int, None, a list of these, or a ReplyError."""
ReplyError = hiredis.ReplyError

_CHUNK = 262_144
NAME = "headway"
"""As which the server lists its connections."""
CLOSED = "the server closed the connection"


class NotSentError(Exception):
    """The server cannot be reached, or did not let us in: nothing was sent."""


class ReplyLostError(Exception):
    """The connection failed after something was sent: the server may have done it."""


class Link:
    """One connection.

    Args:
        options: how to talk to it.
        account: who we say we are.
        database: to be used; 0 where it is not chosen.

    Attributes:
        reader: what replies are read with.

    Raises:
        NotSentError: it cannot be reached.
        ReplyError: it did not let us in.
    """

    __slots__ = ("address", "reader", "socket")

    def __init__(
        self, address: Address, options: RedisOptions, account: Account, database: int = 0
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

    def _greet(self, account: Account, database: int) -> None:
        if account.password or account.username:
            who = (account.username,) if account.username else ()
            self.ask("AUTH", *who, account.password)
        if database:
            self.ask("SELECT", database)
        # Only for those who look at the server's list; a user without the right to it may do so.
        self.call(packed("CLIENT", "SETNAME", NAME))

    def ask(self, *words: Word) -> Reply:
        """Send a command and wait for its reply.

        Raises:
            ReplyError: the server refused it.
            ReplyLostError: there was no reply.
        """
        reply = self.call(packed(*words))
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def call(self, payload: bytes) -> Reply:
        """Send one packed command, and wait for its reply, which may be a ReplyError.

        Raises:
            ReplyLostError: there was none; the link must not be used any more.
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
            OSError: the connection failed; TimeoutError if nothing came in time.
        """
        reader = self.reader
        while True:
            reply = reader.gets()
            if reply is not False:
                return reply
            data = self.socket.recv(_CHUNK)
            if not data:
                raise ConnectionResetError(CLOSED)
            reader.feed(data)

    def is_stale(self) -> bool:
        """Return whether an idle link was closed by the server, or something unexpected came."""
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
        """End whatever waits on it in another thread."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It was closed already.
            return

    def close(self) -> None:
        """Release it."""
        self.socket.close()


def packed(*words: Word) -> bytes:
    """A command as it is sent."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n%b" % (len(parts), packed_words(parts))


def packed_words(words: Iterable[bytes]) -> bytes:
    """Encode the words of a command; their number is sent separately."""
    return b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


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
        # A peer that vanished without a word is found by the kernel, while a subscriber listens.
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
