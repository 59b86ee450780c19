"""What time brings to jobs: they become due, expire, miss a deadline, or may be forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from headway.stores.ledger.rows import DueRow, JobRow
from headway.stores.postgres.arrays import Numbers
from headway.stores.postgres.statement import Ask, Tell, of
from headway.stores.postgres.tables.jobs.base import JobsBase
from headway.stores.postgres.tables.jobs.record import COLUMNS

_LANE = "(SELECT no FROM @lane WHERE name = $1)"
_DUE = Ask(
    "SELECT seq, id::text, entry, fired_at FROM @job"  # noqa: S608  (names only)
    f" WHERE state = 0 AND lane = {_LANE} AND due_at <= @now ORDER BY due_at, seq LIMIT $2",
    of("scheduled"),
    ahead=True,
)
_PROMOTE = Tell(
    "UPDATE @job SET state = 1 WHERE seq = ANY ($1) RETURNING flow, priority, due_at, seq",
    of("scheduled", "waiting", "job"),
)
_NEXT_DUE = Ask(
    f"SELECT due_at FROM @job WHERE state = 0 AND lane = {_LANE} ORDER BY due_at LIMIT 1",  # noqa: S608  (names only)
    of("scheduled"),
    ahead=True,
)
_LANES_DUE = Ask(
    "WITH RECURSIVE scheduled (lane, due_at) AS ("
    " (SELECT lane, due_at FROM @job WHERE state = 0 ORDER BY lane, due_at LIMIT 1)"
    " UNION ALL SELECT next.* FROM scheduled CROSS JOIN LATERAL (SELECT job.lane, job.due_at"
    " FROM @job AS job WHERE state = 0 AND job.lane > scheduled.lane"
    " ORDER BY job.lane, job.due_at LIMIT 1) AS next)"
    " SELECT name FROM scheduled JOIN @lane AS lane ON lane.no = scheduled.lane"
    " WHERE due_at <= @now ORDER BY name LIMIT $1",
    of("scheduled"),
    ahead=True,
)
_EXPIRED = Ask(
    "SELECT id::text FROM @job"
    " WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0 AND expires_at <= @now"
    " ORDER BY expires_at, seq LIMIT $1",
    of("expiry"),
    ahead=True,
)
_NEXT_EXPIRY = Ask(
    "SELECT expires_at FROM @job WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0"
    " ORDER BY expires_at LIMIT 1",
    of("expiry"),
    ahead=True,
)
_DEADLINES = Ask(
    "SELECT id::text FROM @job"
    " WHERE deadline_at IS NOT NULL AND deadline_at <= @now AND state = 4"
    " ORDER BY deadline_at, seq LIMIT $1",
    of("deadline"),
    ahead=True,
)
_NEXT_DEADLINE = Ask(
    "SELECT deadline_at FROM @job WHERE deadline_at IS NOT NULL ORDER BY deadline_at LIMIT 1",
    of("deadline"),
    ahead=True,
)
_PURGEABLE = Ask(
    "SELECT id::text FROM @job"
    " WHERE purge_at IS NOT NULL AND purge_at <= @now AND state >= 5"
    " ORDER BY purge_at, seq LIMIT $1",
    of("job"),
    ahead=True,
)
_OF_ENTRY = Ask(
    f"SELECT {COLUMNS} FROM @job"  # noqa: S608  (names only)
    " WHERE entry IS NOT NULL AND state <= 4 AND entry = $1 ORDER BY fired_at, seq",
    of("job"),
)


class JobTiming(JobsBase):
    """The part of the job table that is ordered by moments."""

    def due(self, lane: str, limit: int) -> list[DueRow]:
        return list(map(DueRow._make, self._session.ask(_DUE, lane, limit)))

    def promote(self, seqs: Sequence[int]) -> set[int]:
        self._moved()
        rows = self._session.do(_PROMOTE, Numbers(seqs))
        for flow, priority, due_at, seq in rows:
            self._wait_behind(flow, priority, due_at, seq)
        return {row[0] for row in rows}

    def next_due(self, lane: str) -> int | None:
        return self._next(_NEXT_DUE, lane)

    def lanes_due(self, limit: int) -> list[str]:
        return [name for (name,) in self._session.ask(_LANES_DUE, limit)]

    def expired(self, limit: int) -> list[str]:
        return [one for (one,) in self._session.ask(_EXPIRED, limit)]

    def next_expiry(self) -> int | None:
        return self._next(_NEXT_EXPIRY)

    def deadlines(self, limit: int) -> list[str]:
        return [one for (one,) in self._session.ask(_DEADLINES, limit)]

    def next_deadline(self) -> int | None:
        return self._next(_NEXT_DEADLINE)

    def purgeable(self, limit: int) -> list[str]:
        return [one for (one,) in self._session.ask(_PURGEABLE, limit)]

    def of_entry(self, entry: str) -> list[JobRow]:
        return self._rows(self._session.ask(_OF_ENTRY, entry))

    def _next(self, ask: Ask, *bound: str) -> int | None:
        rows = self._session.ask(ask, *bound)
        return rows[0][0] if rows else None
