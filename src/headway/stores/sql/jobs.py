"""A job's columns with their values by position, as they are written; and listings of jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from headway.contract.views import JobsQuery
from headway.core.job import JobPolicy
from headway.stores.ledger.columns import CODES, encode_job_rest
from headway.stores.ledger.packing import encode_cascade, encode_some, encode_uses
from headway.stores.ledger.paging import Summary, page_of, read_until_large
from headway.stores.ledger.rows import FlowKey, JobRow
from headway.stores.sql.statement import ANY_JOB, Select, SessionOf, SqlSession, SqlTable

_NEW_AS_IS = (
    *("flow", "policy", "priority", "due_at", "created_at", "care", "subject", "stage"),
    *("expires_at", "entry", "fired_at", "key", "args", "id"),
)
_new_as_is = attrgetter(*_NEW_AS_IS)
_LANE, _STATE = attrgetter("lane"), attrgetter("state")
_KEYED, _CASCADE = attrgetter("keyed"), attrgetter("cascade")
NEW = (*_NEW_AS_IS, "state", "lane", "keyed", "cascade")
"""The columns of `new_columns`."""
_SAVED_AS_IS = (
    *("flow", "policy", "priority", "due_at", "run", "attempt", "care", "blocked_ms", "request"),
    *("claimed_at", "finished_at", "purge_at", "subject", "stage", "expires_at", "deadline_at"),
    *("key", "ticket", "ticket_amount", "parked_at", "unfit", "parked_since", "gated"),
    *("cancel_requested", "args"),
)
_saved_as_is = attrgetter(*_SAVED_AS_IS)
SAVED = (
    *(*_SAVED_AS_IS, "state", "worker", "last_worker", "outcome", "reason", "keyed", "members"),
    *("candidate", "cascade", "rest"),
)
"""The columns of `saved_values`."""


def new_columns(rows: Sequence[JobRow], lane: Callable[[str], int]) -> tuple[Sequence[Any], ...]:
    """Return the columns of new, unchanged jobs, in the order of `NEW`; `lane` numbers a lane."""
    names = dict.fromkeys(map(_LANE, rows))
    lanes = dict(zip(names, map(lane, names), strict=True))
    keyed, cascades = [*map(_KEYED, rows)], [*map(_CASCADE, rows)]
    return (
        *zip(*map(_new_as_is, rows), strict=True),
        [*map(CODES.__getitem__, map(_STATE, rows))],
        [*map(lanes.__getitem__, map(_LANE, rows))],
        [*map(encode_uses, keyed)] if any(keyed) else [None] * len(rows),
        [*map(encode_cascade, cascades)] if any(cascades) else cascades,
    )


def saved_values(row: JobRow, word: Callable[[str], int]) -> tuple[Any, ...]:
    """Return the values of a changed job, in the order of `SAVED`; `word` numbers a text."""
    return (
        *_saved_as_is(row),
        CODES[row.state],
        word(row.worker) if row.worker is not None else None,
        word(row.last_worker) if row.last_worker else None,
        row.outcome or None,
        row.reason or None,
        encode_uses(row.keyed),
        encode_some(row.members),
        row.candidate or None,
        encode_cascade(row.cascade),
        encode_job_rest(row),
    )


class ListingQuery(NamedTuple):
    """A listing by arrival in one direction; the database examines a limited number of rows."""

    summarize: Select
    fitting: Select


class ListingQueries(NamedTuple):
    """The statements of a store's listings; in each pair, the second starts at the newest job.

    Attributes:
        about: over the jobs with one subject.
        by_state: over the jobs in one state, by its code, for states that have an index.
        read_flows: decodes the flows that a `summarize` returns.
    """

    all: tuple[ListingQuery, ListingQuery]
    about: tuple[ListingQuery, ListingQuery]
    by_state: dict[int, tuple[ListingQuery, ListingQuery]]
    read_flows: Callable[[Any], Sequence[int]]


def listing_queries(flows: str, where: str) -> tuple[ListingQuery, ListingQuery]:
    """Return the queries in both directions.

    Args:
        flows: the aggregate that lists the distinct flows.
        where: follows the table's name and ends in a condition; `?` is its parameter.
    """

    def query(past: str, order: str, last: str) -> ListingQuery:
        rows = (
            f"FROM (SELECT seq, flow, state FROM @job {where} AND seq {past} $1"  # noqa: S608  (names only)
            f" ORDER BY seq{order} LIMIT $2) AS seen"
        )
        summarize = f"SELECT count(*), {last}(seq), {flows} FILTER (WHERE state = ANY ($3)) {rows}"
        fits = f"state = ANY ($3) AND flow = ANY ($4) ORDER BY seq{order} LIMIT $5"
        return ListingQuery(
            Select(summarize.replace("?", "$4"), ANY_JOB),
            Select(f"SELECT seq {rows} WHERE {fits}".replace("?", "$6"), ANY_JOB),
        )

    return query(">", "", "max"), query("<", " DESC", "min")


class Listed:
    """The rows of the listing that examines the fewest for a query; see `paging.Rows`."""

    def __init__(self, session: SqlSession, queries: ListingQueries, query: JobsQuery) -> None:
        self._session = session
        self._read_flows = queries.read_flows
        pair, self._bound = queries.all, ()
        if query.subject is not None:
            pair, self._bound = queries.about, (query.subject,)
        elif len(query.states) == 1:
            pair = queries.by_state.get(CODES[query.states[0]], pair)
        self._queries = pair[query.newest]

    def summarize(self, after: int, many: int, states: Sequence[int]) -> Summary:
        session = self._session
        parameters = (after, many, session.number_list(states), *self._bound)
        count, last, found = session.select(self._queries.summarize, *parameters)[0]
        flows = self._read_flows(found)
        session.flows.read(flows)
        return Summary(count, last, flows)

    def fitting(
        self, after: int, many: int, states: Sequence[int], flows: Sequence[int], limit: int
    ) -> list[int]:
        lists = self._session.number_list
        parameters = (after, many, lists(states), lists(flows), limit, *self._bound)
        return [seq for (seq,) in self._session.select(self._queries.fitting, *parameters)]


class SqlJobs(SqlTable[SessionOf], ABC):
    """Flows and policies by number, and pages of a listing; see `JobTable`."""

    queries: ListingQueries

    @abstractmethod
    def _by_seq(self, seqs: Sequence[int]) -> list[JobRow]:
        """Return jobs by their arrival numbers, in any order."""

    def flow_number(self, key: FlowKey) -> int:
        return self._session.flows.number(key)

    def flow(self, number: int) -> FlowKey:
        return self._session.flows.value(number)

    def policy_number(self, policy: JobPolicy) -> int:
        return self._session.policies.number(policy)

    def policy(self, number: int) -> JobPolicy:
        return self._session.policies.value(number)

    def page(self, query: JobsQuery) -> tuple[list[JobRow], str | None]:
        rows = Listed(self._session, self.queries, query)
        seqs, cursor = page_of(query, rows, self._session.flows.value)
        return read_until_large(seqs, self._in_order, cursor)

    def _in_order(self, seqs: Sequence[int]) -> list[JobRow]:
        found = {row.seq: row for row in self._by_seq(seqs)}
        return [found[seq] for seq in seqs]
