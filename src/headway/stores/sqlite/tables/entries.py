"""The table of the timetable's entries."""

from __future__ import annotations

from headway.stores.ledger.columns.entries import ENTRY, entry_values, read_entry
from headway.stores.ledger.rows import EntryRow
from headway.stores.sqlite.session import Session

_LOAD = f"SELECT {ENTRY} FROM entry WHERE name = ?"  # noqa: S608  (names of columns only)
_ALL = f"SELECT {ENTRY} FROM entry ORDER BY name"  # noqa: S608  (names of columns only)
_SAVE = (
    "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
    " spec = excluded.spec, revision = excluded.revision, last_fired = excluded.last_fired,"
    " ahead_until = excluded.ahead_until, folded = excluded.folded,"
    " first_seen_at = excluded.first_seen_at"
)


class SqliteEntries:
    """See `EntryTable`."""

    def __init__(self, session: Session) -> None:
        self._db = session.db

    def load(self, name: str) -> EntryRow | None:
        row = self._db.execute(_LOAD, (name,)).fetchone()
        return read_entry(row) if row is not None else None

    def all(self) -> list[EntryRow]:
        return [read_entry(row) for row in self._db.execute(_ALL)]

    def save(self, row: EntryRow) -> None:
        self._db.execute(_SAVE, entry_values(row))
