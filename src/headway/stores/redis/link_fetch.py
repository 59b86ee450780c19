"""Fetching a link in a thread for a task that may be cancelled meanwhile."""

from __future__ import annotations

from threading import Lock

from headway.stores.redis.link import Link
from headway.stores.redis.pool import Pool


class LinkFetch:
    """Fetches one link, which goes back to the pool if it is not taken.

    A task that is cancelled while it awaits a thread never gets the thread's result, so the link
    would stay open.

    Args:
        pool: where the link comes from.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = Lock()
        self._fetched: Link | None = None
        self._ended = False

    def run(self) -> None:
        """Fetch the link. Blocks; in any thread.

        Raises:
            NotSentError: there is none now.
            ReplyError: the server did not let us in.
            StoreError: the server is not fit for a store.
        """
        link = self._pool.take()
        with self._lock:
            if not self._ended:
                self._fetched = link
                return
        self._pool.give_back(link)

    def taken(self) -> Link:
        """Return the link; the caller owns it from now on."""
        with self._lock:
            link, self._fetched = self._fetched, None
        assert link is not None  # noqa: S101  (`run` has returned)
        return link

    def end(self) -> None:
        """Return a link that was not taken to the pool, now or when it is there."""
        with self._lock:
            self._ended = True
            link, self._fetched = self._fetched, None
        if link is not None:
            self._pool.give_back(link)
