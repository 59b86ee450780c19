"""Calls of scripts, from any event loop, any thread, or callers without an event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Lock

from headway.core.errors import InvariantBroken, OutcomeUnknown, PayloadTooLarge, StoreError
from headway.stores.ledger.calls import running_loop
from headway.stores.redis.failures import explain, is_transient, reply_lost
from headway.stores.redis.link import (
    Link,
    LoopLink,
    NotSentError,
    ReplyError,
    ReplyLostError,
    packed_words,
)
from headway.stores.redis.options import RedisOptions
from headway.stores.redis.pool import Pool
from headway.stores.redis.scripts import Script
from headway.stores.redis.timing import monotonic

ARGUMENTS = 5
"""Number of arguments of each call; see base/run.lua."""
MOST_BYTES = 512 * 1024 * 1024
"""Maximum size of a call: a server closes the connection of a larger one."""


_LinkKey = tuple[asyncio.AbstractEventLoop, bool]
"""An event loop, and whether its link is for urgent calls."""


class Calls:
    """Calls to the server of one store, on a link per event loop, or on a pool's links without one.

    Urgent calls have their own link, because replies on one link arrive in the order of the calls.
    """

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self.pool = Pool(options, self.key(""))
        self._heads: dict[str, bytes] = {}
        self._links: dict[_LinkKey, LoopLink] = {}
        self._opening: dict[_LinkKey, asyncio.Task[LoopLink | None]] = {}
        self._lock = Lock()

    def key(self, suffix: str) -> str:
        """Return the full name of a key."""
        return f"{{headway:{self._options.namespace}}}:{suffix}"

    async def run(
        self, script: Script, arguments: tuple[bytes, ...], *, urgent: bool = False
    ) -> bytes:
        """Run a script, and return its reply. Without an event loop it blocks the caller's thread.

        Args:
            urgent: do not wait for other calls, as for a beat, on which leases depend.

        Raises:
            StoreUnavailable: the server is unreachable or refuses; nothing was written.
            OutcomeUnknown: the server did not reply.
            StoreError: the server failed; nothing was written.
            InvariantBroken: the script failed because of a bug.
            PayloadTooLarge: the call is larger than a server accepts; nothing was written.
        """
        payload = self.packed(script, arguments)
        loop = running_loop()
        if loop is None:
            return self.pool.run(script, payload)
        asked = monotonic()
        link_key = (loop, urgent)
        link = self._links.get(link_key)
        if link is None or link.dead:
            link = await self._open_once(link_key)
        reply = None if link is None else await self._call_on(link_key, link, script, payload)
        if reply is not None:
            self.pool.note_answer()
            return reply
        # The server is unreachable, lacks the script, or refuses for now: retries need a thread.
        return await asyncio.to_thread(self.pool.run, script, payload, asked)

    def packed(self, script: Script, arguments: tuple[bytes, ...]) -> bytes:
        """Return the encoded call of a script.

        Raises:
            PayloadTooLarge: it is larger than a server accepts.
        """
        payload = self._head(script) + packed_words(arguments)
        if len(payload) > MOST_BYTES:
            message = f"a call of {len(payload)} bytes is too large for Redis"
            raise PayloadTooLarge(message, hint=f"at most {MOST_BYTES}; pass fewer jobs at once")
        return payload

    async def _call_on(
        self, link_key: _LinkKey, link: LoopLink, script: Script, payload: bytes
    ) -> bytes | None:
        """Return the reply; None if the call must be retried."""
        try:
            reply = await link.call(payload)
        except NotSentError:
            return None
        except ReplyLostError as error:
            lost: OutcomeUnknown = reply_lost(error, str(self._options))
            raise lost from error
        if not isinstance(reply, ReplyError):
            return reply
        text = script.locate(str(reply))
        if is_transient(text):
            # The server may no longer be the master.
            self._links.pop(link_key, None)
            link.retire()
        elif not text.startswith("NOSCRIPT"):
            # Not once more: a script that failed may have written, and would find that as done.
            failure: StoreError | InvariantBroken = explain(text, str(self._options))
            raise failure
        return None

    def drop_links(self) -> None:
        """Drop all links, which lead to the wrong server; the next calls open new ones."""
        self.pool.forget()
        with self._lock:
            links = list(self._links.items())
            self._links.clear()
        for (loop, _), link in links:
            with suppress(RuntimeError):  # its loop is closed, and so is the link
                loop.call_soon_threadsafe(link.retire)

    def _head(self, script: Script) -> bytes:
        head = self._heads.get(script.name)
        if head is None:
            keys = [self.key(suffix).encode() for suffix in script.keys]
            words = [b"EVALSHA", script.sha.encode(), b"%d" % len(keys), *keys]
            head = b"*%d\r\n%b" % (len(words) + ARGUMENTS, packed_words(words))
            self._heads[script.name] = head
        return head

    async def _open_once(self, link_key: _LinkKey) -> LoopLink | None:
        """Open a link, once for concurrent callers; return None if that fails."""
        opening = self._opening.get(link_key)
        if opening is None:
            loop, _ = link_key
            opening = self._opening[link_key] = loop.create_task(self._open_link(link_key))
        return await asyncio.shield(opening)

    async def _open_link(self, link_key: _LinkKey) -> LoopLink | None:
        fetch = _LinkFetch(self.pool)
        try:
            await asyncio.to_thread(fetch.run)
            made = LoopLink(fetch.taken(), self._options.timeout_ms / 1000)
        except (NotSentError, ReplyError):
            return None
        finally:
            self._opening.pop(link_key, None)
            fetch.end()
        with self._lock:
            for other in [one for one in self._links if one[0].is_closed()]:
                self._links.pop(other).close()
            if not self.pool.closed:
                self._links[link_key] = made
                return made
        made.close()
        return None

    async def close(self) -> None:
        """Close all links, after the calls of this loop have finished."""
        here = running_loop()
        with self._lock:
            self.pool.close()
            links = list(self._links.items())
            self._links.clear()
        for (loop, _), link in links:
            if loop is here:
                await link.drain(self._options.timeout_ms / 1000)
                link.close()
            elif loop.is_running():
                loop.call_soon_threadsafe(link.retire)
            else:
                link.close()


class _LinkFetch:
    """A fetch of one link on a thread; an unclaimed link returns to the pool.

    A task that is cancelled while it awaits a thread never gets the thread's result, so the link
    would stay open.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = Lock()
        self._fetched: Link | None = None
        self._ended = False

    def run(self) -> None:
        """Fetch the link. Blocks; callable on any thread.

        Raises:
            NotSentError: the server is unreachable.
            ReplyError: the server refused the connection.
            StoreError: the server cannot hold a store.
        """
        link = self._pool.take()
        with self._lock:
            if not self._ended:
                self._fetched = link
                return
        self._pool.give_back(link)

    def taken(self) -> Link:
        """Return the link; the caller then owns it."""
        with self._lock:
            link, self._fetched = self._fetched, None
        assert link is not None  # noqa: S101  (`run` has returned)
        return link

    def end(self) -> None:
        """Return an unclaimed link to the pool, now or when it is fetched."""
        with self._lock:
            self._ended = True
            link, self._fetched = self._fetched, None
        if link is not None:
            self._pool.give_back(link)
