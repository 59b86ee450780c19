"""Walks over jobs for a page of a listing: where one begins, and what of it is on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headway.contract.views import JobsQuery
from headway.core.errors import InvalidValue
from headway.stores.ledger.columns.states import CODES, STATES
from headway.stores.ledger.rows import FlowKey

LOOKED_AT = 5_000
"""Rows that one page of a listing looks at."""
CHUNK = 500
"""Rows of a walk that are read at once."""
_END = 2**62

Seen = tuple[int, int, int]
"""Of a row that is looked at: seq, flow, state."""


def start_of(query: JobsQuery) -> int:
    """The seq behind which the page begins: above it, or below it where the newest come first.

    Raises:
        InvalidValue: the cursor is none of a listing.
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
    """What of a walk is on the page.

    Args:
        query: what is looked for.
        walk: the rows, from `start_of` on.
        flow_of: the flow of a number.

    Returns:
        The seqs, in the order of the walk, and the cursor of the next page; None at the end.
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
    # A subject is a tenant's: where none is named, of the jobs that have no tenant.
    tenant = query.tenant if query.subject is None else query.tenant or ""
    return (
        (query.lane is None or flow.lane == query.lane)
        and (tenant is None or flow.tenant == tenant)
        and (query.kind is None or flow.kind == query.kind)
    )
