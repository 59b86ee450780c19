"""What the parts of the job table share."""

from __future__ import annotations

from collections.abc import Iterable

from headway.stores.ledger.rows import JobRow
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.tables.jobs.record import Row, read_row


class JobsBase:
    """The connection, and rows as jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def _rows(self, found: Iterable[Row]) -> list[JobRow]:
        session = self._session
        return [read_row(session, row) for row in found]
