"""The table of tokens."""

from __future__ import annotations

from collections.abc import Iterable

from headway.contract.tokens import TokenSpec
from headway.stores.ledger.packing import decoder, encode
from headway.stores.ledger.tables.tokens import TokenRow
from headway.stores.sqlite.database import text_list
from headway.stores.sqlite.session import Session

_LOAD = "SELECT spec, created_at, created_by, used_at FROM token WHERE id IN carray(?)"
_ALL = "SELECT spec, created_at, created_by, used_at FROM token"
_COUNT = "SELECT count(*) FROM token"
_SAVE = (
    "INSERT INTO token VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " spec = excluded.spec, created_at = excluded.created_at,"
    " created_by = excluded.created_by, used_at = excluded.used_at"
)
_REMOVE = "DELETE FROM token WHERE id = ?"

_Kept = tuple[bytes, int, str, int | None]
_spec = decoder(TokenSpec)


class SqliteTokens:
    """Tokens by id."""

    def __init__(self, session: Session) -> None:
        self._db = session.db

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        """The tokens that have a row, by id; a copy each."""
        wanted = tuple(ids)
        if not wanted:
            return {}
        rows = (_row(row) for row in self._db.execute(_LOAD, (text_list(wanted),)))
        return {row.spec.id: row for row in rows}

    def all(self) -> list[TokenRow]:
        """All tokens, in any order."""
        return [_row(row) for row in self._db.execute(_ALL)]

    def count(self) -> int:
        """How many there are."""
        return self._db.execute(_COUNT).get

    def save(self, rows: Iterable[TokenRow]) -> None:
        """Writes tokens."""
        self._db.executemany(
            _SAVE,
            [
                (row.spec.id, encode(row.spec), row.created_at, row.created_by, row.used_at)
                for row in rows
            ],
        )

    def remove(self, token: str) -> None:
        """Forgets a token."""
        self._db.execute(_REMOVE, (token,))


def _row(kept: _Kept) -> TokenRow:
    spec, created_at, created_by, used_at = kept
    return TokenRow(spec=_spec(spec), created_at=created_at, created_by=created_by, used_at=used_at)
