"""An errand: a link is fetched in a thread for a caller who may be gone when it is there."""

from __future__ import annotations

from threading import Lock

from headway.stores.redis.link import Link
from headway.stores.redis.pool import Pool


class Errand:
    """Fetches one link; it goes back to the pool if nobody takes it.

    A task that is cancelled while it awaits a thread never learns what the thread returns: the
    link would be nobody's, and stay open.

    Args:
        pool: where the link comes from.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = Lock()
        self._fetched: Link | None = None
        self._ended = False

    def run(self) -> None:
        """Fetches the link. Blocks; in any thread.

        Raises:
            NotSentError: there is none now.
            ReplyError: the server did not let us in.
            StoreError: it is no server that a store may stand on.
        """
        link = self._pool.take()
        with self._lock:
            if not self._ended:
                self._fetched = link
                return
        self._pool.give_back(link)

    def taken(self) -> Link:
        """The link that was fetched; the caller's from now on."""
        with self._lock:
            link, self._fetched = self._fetched, None
        assert link is not None  # noqa: S101  (an errand that has run has one)
        return link

    def end(self) -> None:
        """The caller goes; a link that was not taken is given back, now or when it is there."""
        with self._lock:
            self._ended = True
            link, self._fetched = self._fetched, None
        if link is not None:
            self._pool.give_back(link)
