"""The tables of timetable entries, tokens, the trail, and the store's own facts."""

from __future__ import annotations

from collections.abc import Iterable

from headway.contract.extensions import Suspicion
from headway.stores.ledger.columns import (
    ENTRY,
    TOKEN,
    entry_values,
    read_entry,
    read_token,
    token_values,
)
from headway.stores.ledger.fingerprint import suspicion
from headway.stores.ledger.rows import EntryRow, TrailRow
from headway.stores.ledger.tables import TokenRow, TrailTable
from headway.stores.sql.statement import (
    EPOCH,
    IDENTITY,
    REVISION,
    Select,
    SessionOf,
    SqlSession,
    SqlTable,
    Write,
    of,
    upsert,
)

_ENTRY = Select(f"SELECT {ENTRY} FROM @entry WHERE name = $1", of("entry"))  # noqa: S608  (names only)
_ENTRIES = Select(f"SELECT {ENTRY} FROM @entry ORDER BY name", of("entry"))  # noqa: S608  (names only)
_SAVE_ENTRY = Write(upsert("entry", ENTRY), of("entry"))
_TOKENS_BY_ID = Select(f"SELECT {TOKEN} FROM @token WHERE id = ANY ($1)", of("token"))  # noqa: S608  (names only)
_TOKENS = Select(f"SELECT {TOKEN} FROM @token", of("token"))  # noqa: S608  (names only)
_TOKEN_COUNT = Select("SELECT count(*) FROM @token", of("token"))
_SAVE_TOKEN = Write(upsert("token", TOKEN), of("token"))
_REMOVE_TOKEN = Write("DELETE FROM @token WHERE id = $1", of("token"))
_LEADER = Select("SELECT holder, term, until_at FROM @leader WHERE role = $1", of("leader"))
_SET_LEADER = Write(upsert("leader", "role, holder, term, until_at"), of("leader"))
LINE = "seq, at, author, reason, verb, target, detail"
"""The columns of a line of the trail."""
_TRAIL_PAGE = Select(
    f"SELECT {LINE} FROM @trail WHERE seq < $1 ORDER BY seq DESC LIMIT $2",  # noqa: S608  (names only)
    of("trail"),
)
_TRAIL_SINCE = Select(
    f"SELECT {LINE} FROM @trail WHERE seq > $1 ORDER BY seq LIMIT $2",  # noqa: S608  (names only)
    of("trail"),
    ahead=True,
)
_LAST_SEQ = 2**62


class SqlEntries(SqlTable[SqlSession]):
    """See `EntryTable`."""

    def load(self, name: str) -> EntryRow | None:
        rows = self._session.select(_ENTRY, name)
        return read_entry(rows[0]) if rows else None

    def all(self) -> list[EntryRow]:
        return [read_entry(row) for row in self._session.select(_ENTRIES)]

    def save(self, row: EntryRow) -> None:
        self._session.write(_SAVE_ENTRY, *entry_values(row))


class SqlTokens(SqlTable[SqlSession]):
    """See `TokenTable`."""

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        wanted = tuple(ids)
        if not wanted or not self._session.has_tokens:
            return {}
        found = self._session.select(_TOKENS_BY_ID, self._session.text_list(wanted))
        rows = (read_token(row) for row in found)
        return {row.spec.id: row for row in rows}

    def all(self) -> list[TokenRow]:
        found = self._session.select(_TOKENS) if self._session.has_tokens else ()
        return [read_token(row) for row in found]

    def count(self) -> int:
        return self._session.select(_TOKEN_COUNT)[0][0]

    def save(self, rows: Iterable[TokenRow]) -> None:
        for row in rows:
            self._session.write(_SAVE_TOKEN, *token_values(row))

    def remove(self, token: str) -> None:
        self._session.write(_REMOVE_TOKEN, token)


class SqlFacts:
    """See `FactTable`."""

    def __init__(self, session: SqlSession, trail: TrailTable) -> None:
        self._session = session
        self._trail = trail

    def identity(self) -> str:
        return f"{self._session.number(IDENTITY):016x}"

    def epoch(self) -> int:
        return self._session.number(EPOCH)

    def revision(self) -> int:
        return self._session.number(REVISION)

    def bump_revision(self) -> int:
        revision = self._session.number(REVISION) + 1
        self._session.put(REVISION, revision)
        return revision

    def clock_ahead_ms(self) -> int:
        return self._session.clock_ahead_ms()

    def suspicion(self) -> Suspicion | None:
        session = self._session
        if not session.changed:
            return None
        return suspicion(self._trail, session.now, session.watch.reason)

    def leader(self, role: str) -> tuple[str, int, int] | None:
        rows = self._session.select(_LEADER, role)
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    def set_leader(self, role: str, holder: str, term: int, until_at: int) -> None:
        self._session.write(_SET_LEADER, role, holder, term, until_at)


class SqlTrail(SqlTable[SessionOf]):
    """Reads of the trail; see `TrailTable`. Each store writes it in its own way."""

    page_of_target: Select
    """Its parameters are the target, the seq below which to read, and the limit."""

    def page(self, target: str | None, before: int | None, limit: int) -> list[TrailRow]:
        below = _LAST_SEQ if before is None else before
        if target is None:
            found = self._session.select(_TRAIL_PAGE, below, limit)
        else:
            found = self._session.select(self.page_of_target, target, below, limit)
        return [TrailRow._make(row) for row in found]

    def since(self, after: int, limit: int) -> list[TrailRow]:
        return [TrailRow._make(row) for row in self._session.select(_TRAIL_SINCE, after, limit)]
