"""The backstop: a slow look at the file itself, for bells that were not heard."""

from __future__ import annotations

from contextlib import suppress

from headway.core.errors import HeadwayError
from headway.stores.sqlite.connection import connect
from headway.stores.sqlite.database import Database
from headway.stores.sqlite.failures import Failure
from headway.stores.sqlite.numbers import WAKES
from headway.stores.sqlite.options import SqliteOptions

_WAKES = "SELECT n FROM number WHERE key = ?"


class Backstop:
    """Reads the number of the last commit that woke anybody.

    Args:
        options: of the file.
    """

    def __init__(self, options: SqliteOptions) -> None:
        self._options = options
        self._db: Database | None = None

    def last_wake(self) -> int:
        """The number; 0 when there is none, or when the file cannot be read just now."""
        try:
            if self._db is None:
                self._db = connect(self._options)
            return self._db.execute(_WAKES, (WAKES,)).get or 0
        except (Failure, HeadwayError):
            # Whoever claims is told why; here it only means that nobody is woken.
            self.close()
            return 0

    def close(self) -> None:
        """Closes its connection."""
        if self._db is not None:
            with suppress(Failure):
                self._db.close()
            self._db = None
