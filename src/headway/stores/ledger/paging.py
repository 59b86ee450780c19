"""Paging through a listing of jobs: where a page begins, and which rows it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headway.contract.views import JobsQuery
from headway.core.errors import InvalidValue
from headway.stores.ledger.columns.states import CODES, STATES
from headway.stores.ledger.rows import FlowKey

LOOKED_AT = 5_000
"""Rows that one page of a listing examines."""
CHUNK = 500
"""Rows that are read at once."""
_END = 2**62

Seen = tuple[int, int, int]
"""Of a row that is examined: seq, flow, state."""


def start_of(query: JobsQuery) -> int:
    """Return the seq after which the page begins: above it, or below it if the newest come first.

    Raises:
        InvalidValue: the cursor is not one of a listing.
    """
    if query.cursor is None:
        return _END if query.newest else 0
    if not (query.cursor.isascii() and query.cursor.isdigit() and len(query.cursor) < 19):
        message = f"the cursor {query.cursor!r} is not one of this listing"
        raise InvalidValue(message, hint="pass the cursor of the page before")
    return int(query.cursor)


def page_of(
    query: JobsQuery, walk: Iterable[Seen], flow_of: Callable[[int], FlowKey]
) -> tuple[list[int], str | None]:
    """Select the rows of a page.

    Args:
        query: the filter.
        walk: the rows, from `start_of` on.
        flow_of: returns the flow of a number.

    Returns:
        The seqs, in the order of the rows, and the cursor of the next page; None at the end.
    """
    states = {CODES[state] for state in query.states or STATES}
    wanted: list[int] = []
    last = 0
    for looked, (seq, flow, state) in enumerate(walk):
        if len(wanted) == query.limit or looked == LOOKED_AT:
            return wanted, str(last)
        last = seq
        if state in states and _is_about(query, flow_of(flow)):
            wanted.append(seq)
    return wanted, None


def _is_about(query: JobsQuery, flow: FlowKey) -> bool:
    # A subject belongs to a tenant; without one it is a subject of jobs without a tenant.
    tenant = query.tenant if query.subject is None else query.tenant or ""
    return (
        (query.lane is None or flow.lane == query.lane)
        and (tenant is None or flow.tenant == tenant)
        and (query.kind is None or flow.kind == query.kind)
    )
