"""Listings: a bounded page, a place in a flow, the oldest waiting job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from headway.contract.views import JobsQuery
from headway.core.flow import Order
from headway.stores.ledger.columns.states import CODES
from headway.stores.ledger.paging import Seen, page_of
from headway.stores.ledger.rows import JobRow
from headway.stores.sqlite.database import number_list
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.tables.jobs.record import COLUMNS
from headway.stores.sqlite.tables.jobs.starting import JobStarting


class _Walk(NamedTuple):
    """A listing by arrival, of which the database examines some rows."""

    look: str
    fitting: str


def _walks(where: str) -> tuple[_Walk, _Walk]:
    """A walk onwards, and one back; `@` stands for what it is bound to."""
    return _walk(where, ">", "", "max"), _walk(where, "<", " DESC", "min")


def _walk(where: str, past: str, order: str, last: str) -> _Walk:
    rows = (
        f"FROM (SELECT seq, flow, state FROM job {where} seq {past} ?1"  # noqa: S608  (names only)
        f" ORDER BY seq{order} LIMIT ?2)"
    )
    flows = "json_group_array(DISTINCT flow) FILTER (WHERE state IN carray(?3))"
    fits = f"WHERE state IN carray(?3) AND flow IN carray(?4) ORDER BY seq{order} LIMIT ?5"
    return _Walk(
        f"SELECT count(*), {last}(seq), {flows} {rows}".replace("@", "?4"),
        f"SELECT seq {rows} {fits}".replace("@", "?6"),
    )


_WALK = _walks("WHERE")
_ABOUT = _walks("INDEXED BY job_subject WHERE subject IS NOT NULL AND subject = @ AND")
_ENDED_BADLY = _walks("INDEXED BY job_ended_badly WHERE state >= 6 AND state = @ AND")
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

    def oldest_due(self, lanes: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for lane in lanes:
            number = self._session.lanes.find(lane)
            flows = self.flows_waiting(lane, -1, 16)
            if flows:
                firsts = [self._db.execute(_FIRST_DUE, (number, flow)).get for flow in flows]
                found[lane] = min(firsts)
        return found

    def page(self, query: JobsQuery) -> tuple[list[JobRow], str | None]:
        rows = _Listed(self._session, *_statement(query))
        seqs, cursor = page_of(query, rows, self._session.flows.thing)
        return self._by_seq(seqs), cursor

    def _by_seq(self, seqs: list[int]) -> list[JobRow]:
        if not seqs:
            return []
        found = {
            row.seq: row for row in self._rows(self._db.execute(_BY_SEQ, (number_list(seqs),)))
        }
        return [found[seq] for seq in seqs]


class _Listed:
    """The rows of a walk; see `paging.Rows`."""

    def __init__(self, session: Session, walk: _Walk, bound: tuple[str | int, ...]) -> None:
        self._db = session.db
        self._walk = walk
        self._bound = bound

    def look(self, after: int, many: int, states: Sequence[int]) -> Seen:
        asked = (after, many, number_list(states), *self._bound)
        ((count, last, flows),) = self._db.execute(self._walk.look, asked).fetchall()
        return Seen(count, last, json.loads(flows))

    def fitting(
        self, after: int, many: int, states: Sequence[int], flows: Sequence[int], limit: int
    ) -> list[int]:
        asked = (after, many, number_list(states), number_list(flows), limit, *self._bound)
        return [seq for (seq,) in self._db.execute(self._walk.fitting, asked)]


def _statement(query: JobsQuery) -> tuple[_Walk, tuple[str | int, ...]]:
    """The walk that examines the fewest rows, and what it is bound to."""
    if query.subject is not None:
        return _ABOUT[query.newest], (query.subject,)
    if len(query.states) == 1 and CODES[query.states[0]] >= 6:
        return _ENDED_BADLY[query.newest], (CODES[query.states[0]],)
    return _WALK[query.newest], ()
