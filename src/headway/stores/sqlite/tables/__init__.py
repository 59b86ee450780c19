"""The ledger's tables on SQLite; each file also has the statements of its tables."""

from __future__ import annotations

from headway.stores.sql.statement import SqlTable
from headway.stores.sqlite.session import Session


class SqliteTable(SqlTable[Session]):
    """A table that also has statements in SQLite's own dialect."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._db = session.db
