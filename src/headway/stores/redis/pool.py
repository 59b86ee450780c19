"""The pool: free links, and retries while a server is temporarily unavailable. Blocks."""

from __future__ import annotations

import os
import threading
from collections import deque

from headway.core.errors import InvariantBroken, OutcomeUnknown, StoreError, StoreUnavailable
from headway.stores.redis.failures import explain, explained, is_transient, reply_lost, unreachable
from headway.stores.redis.link import (
    STALE_AFTER,
    Link,
    NotSentError,
    Reply,
    ReplyError,
    ReplyLostError,
    packed,
)
from headway.stores.redis.options import RedisOptions
from headway.stores.redis.scripts import Script
from headway.stores.redis.server import ask_server, check_rights, check_server, masters
from headway.stores.redis.timing import monotonic, pause

_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds between attempts; the last value repeats."""
_CALLS = 8
"""Maximum number of attempts to call a script, which another client may flush after each load."""
_SPARE = 8
"""Maximum number of free links."""


class Pool:
    """The free links of a store.

    Args:
        base: what the store's keys begin with.

    Attributes:
        closed: whether links can no longer be taken.
    """

    def __init__(self, options: RedisOptions, base: str) -> None:
        self._options = options
        self._where = str(options)
        self._base = base
        self._free: deque[tuple[Link, float]] = deque()
        self.closed = False
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._refused: tuple[float, StoreError | InvariantBroken] | None = None

    def connect(self) -> Link:
        """Open a link to the master, without retries, and check the server.

        Raises:
            NotSentError: no server is reachable.
            ReplyError: the server refused the connection.
            StoreError: the server cannot hold a store.
        """
        self._check()
        reason = "no server is named"
        for address in masters(self._options, self._base):
            link = Link(address, self._options, self._options.account, self._options.database)
            try:
                check_server(ask_server(link), self._where)
                check_rights(link, self._base)
            except (NotSentError, ReplyLostError) as error:
                link.close()
                reason = str(error)
                continue
            except BaseException:
                link.close()
                raise
            return link
        raise NotSentError(reason)

    def take(self) -> Link:
        """Return a free link, or a new one; the caller owns it.

        Raises:
            NotSentError: no server is reachable.
            ReplyError: the server refused the connection.
            StoreError: the server cannot hold a store.
        """
        self._check()
        while True:
            try:
                link, since = self._free.pop()
            except IndexError:
                return self.connect()
            if monotonic() - since < STALE_AFTER or not link.is_stale():
                return link
            link.close()

    def give_back(self, link: Link) -> None:
        """Return a link to the pool."""
        if len(self._free) >= _SPARE:
            link.close()
            return
        self._free.append((link, monotonic()))
        # Checked last: a concurrent `close` may have missed this link.
        if self.closed:
            self.forget()

    def run(self, script: Script, payload: bytes, asked: float | None = None) -> bytes:
        """Run a script; retry while the server is unreachable, loading or failing over.

        Args:
            payload: the encoded call.
            asked: when the caller made the call, if it may have waited for a thread since; in
                monotonic seconds.

        Raises:
            StoreUnavailable: the server stays unreachable, or refuses; nothing was written.
            OutcomeUnknown: the server did not reply.
            StoreError: the server failed; nothing was written.
            InvariantBroken: the script failed because of a bug.
        """
        if asked is not None:
            self._refuse_late(asked)
        tries = 0
        while True:
            try:
                reply = self._try(script, payload)
            except NotSentError as error:
                failure: StoreError | InvariantBroken = unreachable(error, self._where)
            except ReplyLostError as error:
                lost: OutcomeUnknown = reply_lost(error, self._where)
                raise lost from error
            else:
                if isinstance(reply, bytes):
                    self.note_answer()
                    return reply
                text = script.locate(str(reply))
                failure = explain(text, self._where)
                if not is_transient(text):
                    raise failure
                self.forget()
            self._wait_or(failure, tries)
            tries += 1

    def run_on_new_link(self, script: Script, payload: bytes) -> bytes:
        """Run a script once, on a new link.

        Raises:
            StoreError: the call failed.
            InvariantBroken: the script failed because of a bug.
        """
        with explained(self._where):
            link = self.connect()
            try:
                reply = self._call(link, script, payload)
            finally:
                link.close()
        if isinstance(reply, bytes):
            return reply
        failure: StoreError | InvariantBroken = explain(script.locate(str(reply)), self._where)
        raise failure

    def _try(self, script: Script, payload: bytes) -> Reply:
        try:
            link = self.take()
        except ReplyError as error:
            return error
        try:
            reply = self._call(link, script, payload)
        except BaseException:
            link.close()
            raise
        self.give_back(link)
        return reply

    def _call(self, link: Link, script: Script, payload: bytes) -> Reply:
        for _ in range(_CALLS):
            reply = link.call(payload)
            if not isinstance(reply, ReplyError) or not str(reply).startswith("NOSCRIPT"):
                return reply
            loaded = link.call(packed("SCRIPT", "LOAD", script.text))
            if isinstance(loaded, ReplyError):
                return loaded
        message = f"the Redis store {self._where}: its scripts are flushed before they are called"
        raise StoreUnavailable(
            message, hint="find the client that sends SCRIPT FLUSH; nothing was written"
        )

    def _refuse_late(self, asked: float) -> None:
        """Refuse a call that waited for its patience behind one that failed.

        A server that does not reply holds up each thread for as long as the timeout, and there are
        few threads: the last of many calls would wait for many times as long.

        Raises:
            StoreError: the error of the other call; nothing was written.
        """
        refused = self._refused
        late_at = monotonic() - self._options.patience_ms / 1000
        if refused is not None and asked < refused[0] and asked <= late_at:
            raise refused[1]

    def _wait_or(self, failure: StoreError | InvariantBroken, tries: int) -> None:
        now = monotonic()
        with self._lock:
            since = self._away_since
            if since is None:
                since = self._away_since = now
        # Counted from the first failure, so that later calls fail immediately.
        if now - since >= self._options.patience_ms / 1000:
            self._refused = now, failure
            raise failure
        pause(_PAUSES[min(tries, len(_PAUSES) - 1)])

    def note_answer(self) -> None:
        """Reset the time of the first failure, because the server has replied on some link."""
        self._away_since = self._refused = None

    def forget(self) -> None:
        """Close the free links, which may lead to a former master or a restarted server."""
        while True:
            try:
                link, _ = self._free.pop()
            except IndexError:
                return
            link.close()

    def close(self) -> None:
        """Close free links now, and links in use when they are given back."""
        self.closed = True
        self.forget()

    def _check(self) -> None:
        if self.closed:
            message = "the store is closed"
            raise StoreUnavailable(message, hint="open it again; nothing was written")
        if self._process != os.getpid():
            message = "the store was opened before this process was forked"
            raise StoreUnavailable(message, hint="open a store in each process")
