"""The table of tokens."""

from __future__ import annotations

from collections.abc import Iterable

from headway.stores.ledger.columns.tokens import TOKEN, read_token, token_values
from headway.stores.ledger.tables.tokens import TokenRow
from headway.stores.sqlite.database import text_list
from headway.stores.sqlite.session import Session

_LOAD = f"SELECT {TOKEN} FROM token WHERE id IN carray(?)"  # noqa: S608  (names of columns only)
_ALL = f"SELECT {TOKEN} FROM token"  # noqa: S608  (names of columns only)
_COUNT = "SELECT count(*) FROM token"
_SAVE = (
    "INSERT INTO token VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " spec = excluded.spec, created_at = excluded.created_at,"
    " created_by = excluded.created_by, used_at = excluded.used_at"
)
_REMOVE = "DELETE FROM token WHERE id = ?"


class SqliteTokens:
    """See `TokenTable`."""

    def __init__(self, session: Session) -> None:
        self._db = session.db

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        wanted = tuple(ids)
        if not wanted:
            return {}
        rows = (read_token(row) for row in self._db.execute(_LOAD, (text_list(wanted),)))
        return {row.spec.id: row for row in rows}

    def all(self) -> list[TokenRow]:
        return [read_token(row) for row in self._db.execute(_ALL)]

    def count(self) -> int:
        return self._db.execute(_COUNT).get

    def save(self, rows: Iterable[TokenRow]) -> None:
        self._db.executemany(_SAVE, [token_values(row) for row in rows])

    def remove(self, token: str) -> None:
        self._db.execute(_REMOVE, (token,))
