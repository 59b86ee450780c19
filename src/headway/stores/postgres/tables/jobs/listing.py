"""Listings for people: a bounded walk, a place in a flow, the oldest that waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headway.contract.views import JobsQuery
from headway.core.flow import Order
from headway.stores.ledger.columns.states import CODES
from headway.stores.ledger.paging import Seen, page_of
from headway.stores.ledger.rows import JobRow
from headway.stores.postgres.arrays import Numbers
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import ANY_JOB, Ask, of
from headway.stores.postgres.tables.jobs.record import COLUMNS
from headway.stores.postgres.tables.jobs.starting import JobStarting


class _Walk(NamedTuple):
    """A listing by arrival, of which the database examines some rows."""

    look: Ask
    fitting: Ask


def _walks(where: str) -> tuple[_Walk, _Walk]:
    """A walk onwards, and one back; `?` stands for what it is bound to."""
    return _walk(where, ">", "", "max"), _walk(where, "<", " DESC", "min")


def _walk(where: str, past: str, order: str, last: str) -> _Walk:
    rows = (
        f"FROM (SELECT seq, flow, state FROM @job WHERE {where} AND seq {past} $1"  # noqa: S608  (names only)
        f" ORDER BY seq{order} LIMIT $2) AS seen"
    )
    look = f"SELECT count(*), {last}(seq), array_agg(DISTINCT flow) FILTER (WHERE state = ANY ($3))"
    fits = f"WHERE state = ANY ($3) AND flow = ANY ($4) ORDER BY seq{order} LIMIT $5"
    return _Walk(
        Ask(f"{look} {rows}".replace("?", "$4"), ANY_JOB),
        Ask(f"SELECT seq {rows} {fits}".replace("?", "$6"), ANY_JOB),
    )


_WALK = _walks("true")
_ABOUT = _walks("subject IS NOT NULL AND subject = ?")
_ENDED_BADLY = {code: _walks(f"state >= 6 AND state = {code}") for code in (6, 7)}
_BY_SEQ = Ask(f"SELECT {COLUMNS} FROM @job WHERE seq = ANY ($1)", ANY_JOB)  # noqa: S608  (names only)
_OF_FLOW = "state = 1 AND lane = $1 AND flow = $2"
_BEFORE = Ask(
    "SELECT (SELECT count(*) FROM (SELECT FROM @job"  # noqa: S608  (names only)
    f" WHERE {_OF_FLOW} AND (priority, due_at, seq) < ($3, $4, $5) LIMIT $6) AS one)",
    of("waiting"),
)
_WAITING = Ask(
    "SELECT want.flow, (SELECT count(*) FROM (SELECT FROM @job AS job WHERE state = 1"
    " AND lane = $1 AND job.flow = want.flow ORDER BY priority, due_at LIMIT $3) AS one)"
    " FROM unnest($2::bigint[]) AS want (flow)",
    of("waiting"),
)
_OLDEST = Ask(
    # Of the first flows of each lane: the order is the index's, so none is walked over.
    "SELECT lane.no, oldest.due_at FROM unnest($1::bigint[]) AS lane (no) CROSS JOIN LATERAL ("
    "WITH RECURSIVE waiting (flow, n) AS ("
    " (SELECT flow, 1 FROM @job AS job WHERE state = 1 AND job.lane = lane.no"
    " ORDER BY flow LIMIT 1)"
    " UNION ALL SELECT one.flow, n + 1 FROM waiting CROSS JOIN LATERAL ("
    " SELECT job.flow FROM @job AS job WHERE state = 1 AND job.lane = lane.no"
    " AND job.flow > waiting.flow ORDER BY job.flow LIMIT 1) AS one WHERE n < 16)"
    " SELECT min(head.due_at) AS due_at FROM waiting CROSS JOIN LATERAL ("
    " SELECT due_at FROM @job AS job WHERE state = 1 AND job.lane = lane.no"
    " AND job.flow = waiting.flow ORDER BY priority, due_at LIMIT 1) AS head) AS oldest"
    " WHERE oldest.due_at IS NOT NULL",
    of("waiting"),
)


class JobListing(JobStarting):
    """The part of the job table that people look at."""

    def place(self, flow: int, order: Order, limit: int) -> int:
        lane = self._session.lanes.find(self._session.flows.thing(flow).lane)
        return self._session.ask(_BEFORE, lane, flow, *order, limit)[0][0]

    def waiting_counts(self, lane: str, flows: Sequence[int], limit: int) -> dict[int, int]:
        number = self._session.lanes.find(lane)
        self._session.flows.read(flows)
        rows = self._session.ask(_WAITING, number, Numbers(flows), limit) if flows else []
        return dict(rows)

    def oldest_due(self, lanes: Sequence[str]) -> dict[str, int]:
        numbers = self._session.lanes.numbers(lanes)
        rows = self._session.ask(_OLDEST, Numbers(numbers.values())) if numbers else ()
        name_of = self._session.lanes.thing
        return {name_of(no): due_at for no, due_at in rows}

    def page(self, query: JobsQuery) -> tuple[list[JobRow], str | None]:
        rows = _Listed(self._session, *_statement(query))
        seqs, cursor = page_of(query, rows, self._session.flows.thing)
        return self._by_seq(seqs), cursor

    def _by_seq(self, seqs: list[int]) -> list[JobRow]:
        if not seqs:
            return []
        rows = self._rows(self._session.ask(_BY_SEQ, Numbers(seqs)))
        found = {row.seq: row for row in rows}
        return [found[seq] for seq in seqs]


class _Listed:
    """The rows of a walk; see `paging.Rows`."""

    def __init__(self, session: Session, walk: _Walk, bound: tuple[str, ...]) -> None:
        self._session = session
        self._walk = walk
        self._bound = bound

    def look(self, after: int, many: int, states: Sequence[int]) -> Seen:
        asked = (after, many, Numbers(states), *self._bound)
        count, last, flows = self._session.ask(self._walk.look, *asked)[0]
        self._session.flows.read(flows or ())
        return Seen(count, last, flows or ())

    def fitting(
        self, after: int, many: int, states: Sequence[int], flows: Sequence[int], limit: int
    ) -> list[int]:
        asked: tuple[Any, ...] = (after, many, Numbers(states), Numbers(flows), limit)
        return [seq for (seq,) in self._session.ask(self._walk.fitting, *asked, *self._bound)]


def _statement(query: JobsQuery) -> tuple[_Walk, tuple[str, ...]]:
    """The walk that examines the fewest rows, and what it is bound to."""
    if query.subject is not None:
        return _ABOUT[query.newest], (query.subject,)
    if len(query.states) == 1 and CODES[query.states[0]] in _ENDED_BADLY:
        return _ENDED_BADLY[CODES[query.states[0]]][query.newest], ()
    return _WALK[query.newest], ()
