"""Jobs by time: due, expired, past a deadline, or past their retention."""

from __future__ import annotations

from collections.abc import Sequence

from headway.stores.ledger.rows import DueRow, JobRow
from headway.stores.sqlite.database import number_list
from headway.stores.sqlite.tables.jobs.base import JobsBase
from headway.stores.sqlite.tables.jobs.record import COLUMNS

_DUE = (
    "SELECT seq, id, entry, fired_at FROM job INDEXED BY job_scheduled"
    " WHERE state = 0 AND lane = ? AND due_at <= ? ORDER BY due_at, seq LIMIT ?"
)
_FLOWS_OF = "SELECT DISTINCT flow FROM job WHERE seq IN carray(?)"
_PROMOTE = "UPDATE job SET state = 1 WHERE seq IN carray(?)"
_NEXT_DUE = "SELECT min(due_at) FROM job INDEXED BY job_scheduled WHERE state = 0 AND lane = ?"
_LANES_DUE = (
    "WITH RECURSIVE scheduled (lane) AS ("
    " SELECT min(lane) FROM job INDEXED BY job_scheduled WHERE state = 0 AND lane > 0"
    " UNION ALL SELECT (SELECT min(job.lane) FROM job INDEXED BY job_scheduled"
    " WHERE state = 0 AND job.lane > scheduled.lane)"
    " FROM scheduled WHERE scheduled.lane IS NOT NULL)"
    " SELECT name FROM scheduled JOIN lane ON lane.no = scheduled.lane"
    " WHERE (SELECT min(due_at) FROM job INDEXED BY job_scheduled"
    " WHERE state = 0 AND job.lane = scheduled.lane) <= ?"
    " ORDER BY name LIMIT ?"
)
_EXPIRED = (
    "SELECT id FROM job INDEXED BY job_expiry"
    " WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0 AND expires_at <= ?"
    " ORDER BY expires_at, seq LIMIT ?"
)
_NEXT_EXPIRY = (
    "SELECT min(expires_at) FROM job INDEXED BY job_expiry"
    " WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0"
)
_DEADLINES = (
    "SELECT id FROM job INDEXED BY job_deadline"
    " WHERE deadline_at IS NOT NULL AND deadline_at <= ? AND state = 4"
    " ORDER BY deadline_at, seq LIMIT ?"
)
_NEXT_DEADLINE = (
    "SELECT min(deadline_at) FROM job INDEXED BY job_deadline WHERE deadline_at IS NOT NULL"
)
_PURGEABLE = (
    "SELECT id FROM job INDEXED BY job_purge"
    " WHERE purge_at IS NOT NULL AND purge_at <= ? AND state >= 5"
    " ORDER BY purge_at, seq LIMIT ?"
)
_OF_ENTRY = (
    f"SELECT {COLUMNS} FROM job INDEXED BY job_entry"  # noqa: S608  (names of columns only)
    " WHERE entry IS NOT NULL AND state <= 4 AND entry = ? ORDER BY fired_at, seq"
)


class JobTiming(JobsBase):
    """The part of the job table that is ordered by moments."""

    def due(self, lane: str, limit: int) -> list[DueRow]:
        number = self._session.lanes.find(lane)
        if number is None:
            return []
        return list(map(DueRow._make, self._db.execute(_DUE, (number, self._session.now, limit))))

    def promote(self, seqs: Sequence[int]) -> set[int]:
        which = (number_list(seqs),)
        self._db.execute(_PROMOTE, which)
        return {flow for (flow,) in self._db.execute(_FLOWS_OF, which)}

    def next_due(self, lane: str) -> int | None:
        number = self._session.lanes.find(lane)
        return None if number is None else self._db.execute(_NEXT_DUE, (number,)).get

    def lanes_due(self, limit: int) -> list[str]:
        found = self._db.execute(_LANES_DUE, (self._session.now, limit))
        return [name for (name,) in found]

    def expired(self, limit: int) -> list[str]:
        return self._past(_EXPIRED, limit)

    def next_expiry(self) -> int | None:
        return self._db.execute(_NEXT_EXPIRY).get

    def deadlines(self, limit: int) -> list[str]:
        return self._past(_DEADLINES, limit)

    def next_deadline(self) -> int | None:
        return self._db.execute(_NEXT_DEADLINE).get

    def purgeable(self, limit: int) -> list[str]:
        return self._past(_PURGEABLE, limit)

    def _past(self, sql: str, limit: int) -> list[str]:
        return [one for (one,) in self._db.execute(sql, (self._session.now, limit))]

    def of_entry(self, entry: str) -> list[JobRow]:
        return self._rows(self._db.execute(_OF_ENTRY, (entry,)))
