"""What the parts of the job table share."""

from __future__ import annotations

from headway.stores.ledger.rows import JobRow
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Rows
from headway.stores.postgres.tables.jobs.record import read_row


class JobsBase:
    """The session, and rows as jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _rows(self, found: Rows) -> list[JobRow]:
        session = self._session
        return [read_row(session, row) for row in found]

    def _moved(self) -> None:
        """Heads that were read stand no more."""
        self._session.heads.clear()
