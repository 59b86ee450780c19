"""The table of the timetable's entries."""

from __future__ import annotations

from headway.stores.ledger.columns.entries import ENTRY, entry_values, read_entry
from headway.stores.ledger.rows import EntryRow
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Tell, of

_LOAD = Ask(f"SELECT {ENTRY} FROM @entry WHERE name = $1", of("entry"))  # noqa: S608  (names only)
_ALL = Ask(f"SELECT {ENTRY} FROM @entry ORDER BY name", of("entry"))  # noqa: S608  (names only)
_SAVE = Tell(
    "INSERT INTO @entry VALUES ($1, $2::bytea, $3, $4::bigint, $5::bigint, $6, $7)"
    " ON CONFLICT (name) DO UPDATE SET"
    " spec = excluded.spec, revision = excluded.revision, last_fired = excluded.last_fired,"
    " ahead_until = excluded.ahead_until, folded = excluded.folded,"
    " first_seen_at = excluded.first_seen_at",
    of("entry"),
)


class PostgresEntries:
    """Entries by name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def load(self, name: str) -> EntryRow | None:
        rows = self._session.ask(_LOAD, name)
        return read_entry(rows[0]) if rows else None

    def all(self) -> list[EntryRow]:
        return [read_entry(row) for row in self._session.ask(_ALL)]

    def save(self, row: EntryRow) -> None:
        self._session.tell(_SAVE, *entry_values(row))
