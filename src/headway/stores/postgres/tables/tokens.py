"""The table of tokens."""

from __future__ import annotations

from collections.abc import Iterable

from headway.contract.tokens import TokenSpec
from headway.stores.ledger.packing import decoder, encode
from headway.stores.ledger.tables.tokens import TokenRow
from headway.stores.postgres.arrays import Texts
from headway.stores.postgres.mode import Mode
from headway.stores.postgres.numbers import SCHEMA
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Row, Tell, of

SINCE = 2
"""The schema that has tokens; this program works on an older one as well."""

_COLUMNS = "spec, created_at, created_by, used_at"
_LOAD = Ask(f"SELECT {_COLUMNS} FROM @token WHERE id = ANY ($1)", of("token"))  # noqa: S608  (names only)
_ALL = Ask(f"SELECT {_COLUMNS} FROM @token", of("token"))  # noqa: S608  (names only)
_COUNT = Ask("SELECT count(*) FROM @token", of("token"))
_SAVE = Tell(
    "INSERT INTO @token VALUES ($1, $2::bytea, $3, $4, $5::bigint) ON CONFLICT (id) DO UPDATE SET"
    " spec = excluded.spec, created_at = excluded.created_at,"
    " created_by = excluded.created_by, used_at = excluded.used_at",
    of("token"),
)
_REMOVE = Tell("DELETE FROM @token WHERE id = $1", of("token"))

_spec = decoder(TokenSpec)


class PostgresTokens:
    """Tokens by id."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _none_yet(self) -> bool:
        # A change is tried all the same: the server's refusal says to migrate.
        session = self._session
        return session.mode is Mode.READ and session.number(SCHEMA) < SINCE

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        wanted = tuple(ids)
        if not wanted or self._none_yet:
            return {}
        rows = (_row(row) for row in self._session.ask(_LOAD, Texts(wanted)))
        return {row.spec.id: row for row in rows}

    def all(self) -> list[TokenRow]:
        return [] if self._none_yet else [_row(row) for row in self._session.ask(_ALL)]

    def count(self) -> int:
        return self._session.ask(_COUNT)[0][0]

    def save(self, rows: Iterable[TokenRow]) -> None:
        for row in rows:
            self._session.tell(
                _SAVE, row.spec.id, encode(row.spec), row.created_at, row.created_by, row.used_at
            )

    def remove(self, token: str) -> None:
        self._session.tell(_REMOVE, token)


def _row(kept: Row) -> TokenRow:
    spec, created_at, created_by, used_at = kept
    return TokenRow(spec=_spec(spec), created_at=created_at, created_by=created_by, used_at=used_at)
