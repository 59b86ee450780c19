"""The table of the timetable's entries."""

from __future__ import annotations

from headway.stores.ledger.packing import decode_entry, encode_entry
from headway.stores.ledger.rows import EntryRow
from headway.stores.sqlite.session import Session

_LOAD = (
    "SELECT name, spec, revision, last_fired, ahead_until, folded, first_seen_at"
    " FROM entry WHERE name = ?"
)
_ALL = (
    "SELECT name, spec, revision, last_fired, ahead_until, folded, first_seen_at"
    " FROM entry ORDER BY name"
)
_SAVE = (
    "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
    " spec = excluded.spec, revision = excluded.revision, last_fired = excluded.last_fired,"
    " ahead_until = excluded.ahead_until, folded = excluded.folded,"
    " first_seen_at = excluded.first_seen_at"
)

_Kept = tuple[str, bytes | None, int, int | None, int | None, int, int]


class SqliteEntries:
    """Entries by name."""

    def __init__(self, session: Session) -> None:
        self._db = session.db

    def load(self, name: str) -> EntryRow | None:
        """An entry; a copy."""
        row = self._db.execute(_LOAD, (name,)).fetchone()
        return _row(row) if row is not None else None

    def all(self) -> list[EntryRow]:
        """All entries, removed ones among them, by name."""
        return [_row(row) for row in self._db.execute(_ALL)]

    def save(self, row: EntryRow) -> None:
        """Writes an entry."""
        self._db.execute(
            _SAVE,
            (
                row.name,
                encode_entry(row.spec),
                row.revision,
                row.last_fired,
                row.ahead_until,
                row.folded,
                row.first_seen_at,
            ),
        )


def _row(kept: _Kept) -> EntryRow:
    name, spec, revision, last_fired, ahead_until, folded, first_seen_at = kept
    return EntryRow(
        name=name,
        spec=decode_entry(spec),
        revision=revision,
        last_fired=last_fired,
        ahead_until=ahead_until,
        folded=folded,
        first_seen_at=first_seen_at,
    )
