"""Paging through a listing of jobs: where a page starts, and which rows it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from headway.contract.views import JobsQuery
from headway.core.errors import InvalidValue
from headway.core.naming import whole_number
from headway.stores.ledger.columns import CODES, STATES
from headway.stores.ledger.rows import FlowKey, JobRow

MOST_EXAMINED = 5_000
"""Most rows examined for one page of a listing."""
FIRST = 500
"""Rows that are examined first; they suffice for most pages."""
MOST_ROWS = 1_000
MOST_BYTES = 16 * 1024 * 1024
"""Size of the jobs on a page from which it has no more rows."""
AT_ONCE = 100
"""Rows read at once, whose size is not known before."""
_END = 2**62


def check_limit(limit: int) -> None:
    """Validate the number of rows of a page.

    Raises:
        InvalidValue: it is not 1 to 1000.
    """
    if not 1 <= limit <= MOST_ROWS:
        message = f"a page of {limit} rows is not valid"
        raise InvalidValue(message, hint=f"pass a limit of 1 to {MOST_ROWS}")


class Summary(NamedTuple):
    """A summary of consecutive rows.

    Attributes:
        rows: their number; fewer than requested at the end of the listing.
        last: seq of the last row; None if there are none.
        flows: the flows of the rows in the requested states, each once.
    """

    rows: int
    last: int | None
    flows: Sequence[int]


class ListingRows(Protocol):
    """The rows of a listing, filtered by the database: rows that do not match never leave it."""

    def summarize(self, after: int, many: int, states: Sequence[int]) -> Summary:
        """Summarize the next rows."""
        ...

    def fitting(
        self, after: int, many: int, states: Sequence[int], flows: Sequence[int], limit: int
    ) -> list[int]:
        """Return the seqs of the first of these rows with one of the states and flows."""
        ...


def read_place(cursor: str | None, last: int = _END) -> int | None:
    """Return the number after which a page starts; None for the first page.

    Args:
        last: the highest number that the listing may have.

    Raises:
        InvalidValue: the cursor belongs to another listing.
    """
    if cursor is None:
        return None
    place = whole_number(cursor, digits=19)
    if place is not None and place <= last:
        return place
    message = f"the cursor {cursor!r} does not belong to this listing"
    raise InvalidValue(message, hint="pass the cursor of the previous page")


def read_until_large(
    seqs: Sequence[int], read: Callable[[Sequence[int]], Iterable[JobRow]], cursor: str | None
) -> tuple[list[JobRow], str | None]:
    """Return the jobs of a page and its cursor: fewer jobs if they are large.

    Args:
        seqs: of the jobs, in the order of the listing.
        read: returns jobs by their seqs, in this order; called once for ordinary jobs on a page of
            up to `AT_ONCE`, and twice for those on a larger one.
        cursor: where the listing continues after all of them.
    """
    found: list[JobRow] = []
    size, at_once = 0, AT_ONCE
    while len(found) < len(seqs):
        if size > MOST_BYTES:
            return found, str(found[-1].seq)
        for row in read(seqs[len(found) : len(found) + at_once]):
            found.append(row)
            size += len(row.args) + len(row.result or b"") + len(row.progress or b"")
        # If the others are of the same size, they can all be read together.
        fits = size * len(seqs) <= MOST_BYTES * len(found)
        at_once = len(seqs) if fits else AT_ONCE
    return found, cursor


def start_of(query: JobsQuery) -> int:
    """Return the seq after which the page starts: above it, or below it if newest come first."""
    place = read_place(query.cursor)
    return (_END if query.newest else 0) if place is None else place


def page_of(
    query: JobsQuery, rows: ListingRows, flow_of: Callable[[int], FlowKey]
) -> tuple[list[int], str | None]:
    """Select the rows of a page.

    Returns:
        The seqs, in the order of the rows, and the cursor of the next page; None at the end.
    """
    states = sorted({CODES[state] for state in query.states or STATES})
    wanted: list[int] = []
    after = start_of(query)
    first = min(FIRST, MOST_EXAMINED)
    for many in filter(None, (first, MOST_EXAMINED - first)):
        seen = rows.summarize(after, many, states)
        flows = [one for one in seen.flows if _is_about(query, flow_of(one))]
        if flows:
            wanted += rows.fitting(after, many, states, flows, query.limit - len(wanted))
        if len(wanted) == query.limit:
            after = wanted[-1]
            break
        if seen.last is None or seen.rows < many:
            return wanted, None
        after = seen.last
    return wanted, str(after) if rows.summarize(after, 1, states).rows else None


def _is_about(query: JobsQuery, flow: FlowKey) -> bool:
    # A subject belongs to a tenant; without a tenant, it is a subject of jobs that have none.
    tenant = query.tenant if query.subject is None else query.tenant or ""
    return (
        (query.lane is None or flow.lane == query.lane)
        and (tenant is None or flow.tenant == tenant)
        and (query.kind is None or flow.kind == query.kind)
    )
