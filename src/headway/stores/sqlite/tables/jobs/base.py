"""The base of the parts of the job table."""

from __future__ import annotations

from collections.abc import Iterable

from headway.stores.ledger.columns.jobs import read_job
from headway.stores.ledger.rows import JobRow
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.tables.jobs.record import Row


class JobsBase:
    """The connection, and rows as jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def _rows(self, found: Iterable[Row]) -> list[JobRow]:
        flow_of, word_of = self._session.flows.thing, self._session.words.thing
        return [read_job(row, flow_of, word_of) for row in found]
