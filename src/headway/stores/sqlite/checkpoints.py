"""Checkpoints: write the log back into the database while no caller waits for a reply."""

from __future__ import annotations

from headway.stores.sqlite.database import PASSIVE, Database

SOON = 1_000
"""Pages of the log (4 KiB each) after which it is written back between small commits."""
LATE = 4_000
"""The same between large commits; a hot page is then copied less often."""
SMALL = 100
"""Pages of a small commit, at most."""


class Checkpoints:
    """Watches the log of the connection that writes.

    SQLite would write it back within a COMMIT, while the caller waits.

    Args:
        db: the connection; its automatic checkpoints are off.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._pages = 0
        self._grown = 0
        self._tried = 0
        db.set_wal_hook(self._note)

    def _note(self, _db: object, _name: str, pages: int) -> int:
        began_anew = pages <= self._pages
        self._grown = pages if began_anew else pages - self._pages
        self._pages = pages
        if began_anew:
            self._tried = 0
        return 0

    def run_if_due(self) -> bool:
        """Write the log back if it is long; takes no lock that others wait for.

        Returns:
            Whether it was tried. While a reader uses the log it stays long; the next try follows
            when it has grown by the same number of pages.
        """
        if self._pages - self._tried < (SOON if self._grown <= SMALL else LATE):
            return False
        self._tried = self._pages
        self._db.wal_checkpoint(mode=PASSIVE)
        return True
