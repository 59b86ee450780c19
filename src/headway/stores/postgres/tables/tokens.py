"""The table of tokens."""

from __future__ import annotations

from collections.abc import Iterable

from headway.stores.ledger.columns.tokens import TOKEN, read_token, token_values
from headway.stores.ledger.tables.tokens import TokenRow
from headway.stores.postgres.arrays import Texts
from headway.stores.postgres.mode import Mode
from headway.stores.postgres.numbers import SCHEMA
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Tell, of

SINCE = 2
"""The schema that has tokens; this program works on an older one as well."""

_LOAD = Ask(f"SELECT {TOKEN} FROM @token WHERE id = ANY ($1)", of("token"))  # noqa: S608  (names only)
_ALL = Ask(f"SELECT {TOKEN} FROM @token", of("token"))  # noqa: S608  (names only)
_COUNT = Ask("SELECT count(*) FROM @token", of("token"))
_SAVE = Tell(
    "INSERT INTO @token VALUES ($1, $2::bytea, $3, $4, $5::bigint) ON CONFLICT (id) DO UPDATE SET"
    " spec = excluded.spec, created_at = excluded.created_at,"
    " created_by = excluded.created_by, used_at = excluded.used_at",
    of("token"),
)
_REMOVE = Tell("DELETE FROM @token WHERE id = $1", of("token"))


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
        rows = (read_token(row) for row in self._session.ask(_LOAD, Texts(wanted)))
        return {row.spec.id: row for row in rows}

    def all(self) -> list[TokenRow]:
        return [] if self._none_yet else [read_token(row) for row in self._session.ask(_ALL)]

    def count(self) -> int:
        return self._session.ask(_COUNT)[0][0]

    def save(self, rows: Iterable[TokenRow]) -> None:
        for row in rows:
            self._session.tell(_SAVE, *token_values(row))

    def remove(self, token: str) -> None:
        self._session.tell(_REMOVE, token)
