"""The table of the timetable's entries."""

from __future__ import annotations

from headway.stores.ledger.packing import decode_entry, encode_entry
from headway.stores.ledger.rows import EntryRow
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Row, Tell, of

_COLUMNS = "name, spec, revision, last_fired, ahead_until, folded, first_seen_at"
_LOAD = Ask(f"SELECT {_COLUMNS} FROM @entry WHERE name = $1", of("entry"))  # noqa: S608  (names only)
_ALL = Ask(f"SELECT {_COLUMNS} FROM @entry ORDER BY name", of("entry"))  # noqa: S608  (names only)
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
        return _row(rows[0]) if rows else None

    def all(self) -> list[EntryRow]:
        return [_row(row) for row in self._session.ask(_ALL)]

    def save(self, row: EntryRow) -> None:
        self._session.tell(
            _SAVE,
            row.name,
            encode_entry(row.spec),
            row.revision,
            row.last_fired,
            row.ahead_until,
            row.folded,
            row.first_seen_at,
        )


def _row(kept: Row) -> EntryRow:
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
