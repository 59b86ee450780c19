"""A slow poll of the file itself, in case notifications were missed."""

from __future__ import annotations

from contextlib import suppress

from headway.core.errors import HeadwayError
from headway.stores.sqlite.connection import connect
from headway.stores.sqlite.database import Database
from headway.stores.sqlite.failures import Failure
from headway.stores.sqlite.numbers import WAKES
from headway.stores.sqlite.options import SqliteOptions

_WAKES = "SELECT n FROM number WHERE key = ?"


class PollFallback:
    """Reads the number of the last commit that notified waiters."""

    def __init__(self, options: SqliteOptions) -> None:
        self._options = options
        self._db: Database | None = None

    def last_wake(self) -> int:
        """Return the number; 0 if there is none, or if the file cannot be read now."""
        try:
            if self._db is None:
                self._db = connect(self._options)
            return self._db.execute(_WAKES, (WAKES,)).get or 0
        except (Failure, HeadwayError):
            # A claim reports the error; here it only means that no waiter is woken.
            self.close()
            return 0

    def close(self) -> None:
        """Close its connection."""
        if self._db is not None:
            with suppress(Failure):
                self._db.close()
            self._db = None
