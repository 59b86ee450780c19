"""Listings: a bounded page, a place in a flow, the oldest waiting job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.contract.views import JobsQuery
from headway.core.flow import Order
from headway.stores.ledger.columns.states import CODES
from headway.stores.ledger.paging import CHUNK, Seen, page_of, start_of
from headway.stores.ledger.rows import JobRow
from headway.stores.sqlite.database import number_list
from headway.stores.sqlite.tables.jobs.record import COLUMNS
from headway.stores.sqlite.tables.jobs.starting import JobStarting

_WALK = "SELECT seq, flow, state FROM job WHERE seq > ? ORDER BY seq LIMIT ?"
_WALK_BACK = "SELECT seq, flow, state FROM job WHERE seq < ? ORDER BY seq DESC LIMIT ?"
_ABOUT = (
    "SELECT seq, flow, state FROM job INDEXED BY job_subject"
    " WHERE subject IS NOT NULL AND subject = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2"
)
_ABOUT_BACK = (
    "SELECT seq, flow, state FROM job INDEXED BY job_subject"
    " WHERE subject IS NOT NULL AND subject = ?3 AND seq < ?1 ORDER BY seq DESC LIMIT ?2"
)
_ENDED_BADLY = (
    "SELECT seq, flow, state FROM job INDEXED BY job_ended_badly"
    " WHERE state >= 6 AND state = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2"
)
_ENDED_BADLY_BACK = (
    "SELECT seq, flow, state FROM job INDEXED BY job_ended_badly"
    " WHERE state >= 6 AND state = ?3 AND seq < ?1 ORDER BY seq DESC LIMIT ?2"
)
_BY_SEQ = f"SELECT {COLUMNS} FROM job WHERE seq IN carray(?)"  # noqa: S608  (names of columns only)
_BEFORE = (
    "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_waiting"
    " WHERE state = 1 AND lane = ?1 AND flow = ?2 AND priority < ?3 LIMIT ?4)"
)
_BEFORE_DUE = (
    "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_waiting"
    " WHERE state = 1 AND lane = ?1 AND flow = ?2 AND priority = ?3 AND due_at < ?5 LIMIT ?4)"
)
_BEFORE_SEQ = (
    "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_waiting WHERE state = 1"
    " AND lane = ?1 AND flow = ?2 AND priority = ?3 AND due_at = ?5 AND seq < ?6 LIMIT ?4)"
)
_WAITING = (
    "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_waiting"
    " WHERE state = 1 AND lane = ? AND flow = ? LIMIT ?)"
)
_FIRST_DUE = (
    "SELECT due_at FROM job INDEXED BY job_waiting"
    " WHERE state = 1 AND lane = ? AND flow = ? ORDER BY priority, due_at LIMIT 1"
)


class JobListing(JobStarting):
    """The part of the job table with listings."""

    def place(self, flow: int, order: Order, limit: int) -> int:
        lane = self._session.lanes.find(self._session.flows.thing(flow).lane)
        which = (lane, flow, order.priority, limit)
        count: int = self._db.execute(_BEFORE, which).get
        if count < limit:
            count += self._db.execute(_BEFORE_DUE, (*which, order.due_at)).get
        if count < limit:
            count += self._db.execute(_BEFORE_SEQ, (*which, order.due_at, order.seq)).get
        return min(limit, count)

    def waiting_counts(self, lane: str, flows: Sequence[int], limit: int) -> dict[int, int]:
        number = self._session.lanes.find(lane)
        counted = {flow: self._db.execute(_WAITING, (number, flow, limit)).get for flow in flows}
        return {flow: int(count) for flow, count in counted.items()}

    def oldest_due(self, lane: str) -> int | None:
        number = self._session.lanes.find(lane)
        firsts = [
            self._db.execute(_FIRST_DUE, (number, flow)).get
            for flow in self.flows_waiting(lane, -1, 16)
        ]
        return min(firsts, default=None)

    def page(self, query: JobsQuery) -> tuple[list[JobRow], str | None]:
        seqs, cursor = page_of(query, self._walk(query), self._session.flows.thing)
        return self._by_seq(seqs), cursor

    def _walk(self, query: JobsQuery) -> Iterator[Seen]:
        sql, bound = _statement(query)
        at = start_of(query)
        while chunk := self._db.execute(sql, (at, CHUNK, *bound)).fetchall():
            yield from chunk
            at = chunk[-1][0]

    def _by_seq(self, seqs: list[int]) -> list[JobRow]:
        if not seqs:
            return []
        found = {
            row.seq: row for row in self._rows(self._db.execute(_BY_SEQ, (number_list(seqs),)))
        }
        return [found[seq] for seq in seqs]


def _statement(query: JobsQuery) -> tuple[str, tuple[str | int, ...]]:
    """The walk that looks at the fewest rows, and what it is bound to."""
    if query.subject is not None:
        return (_ABOUT_BACK if query.newest else _ABOUT), (query.subject,)
    if len(query.states) == 1 and CODES[query.states[0]] >= 6:
        return (_ENDED_BADLY_BACK if query.newest else _ENDED_BADLY), (CODES[query.states[0]],)
    return (_WALK_BACK if query.newest else _WALK), ()
