"""The flows of a lane or a gate, with the ids of the first jobs of each."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.views import FlowsQuery, Page, WaitingFlow
from headway.core.errors import InvalidValue
from headway.stores.ledger.ledger import Ledger

COUNTED = 1_000
"""Up to this number the waiting jobs of a flow are counted."""
MOST = 100
"""Flows of a page, and jobs that are named of each."""
LAST = 2**31 - 1
"""The highest number of a flow."""


def check_flows(query: FlowsQuery) -> int:
    """Return the number of the flow after which the page begins; -1 for the first page.

    Raises:
        InvalidValue: the page is too large, or the cursor belongs to another listing.
    """
    if not (1 <= query.limit <= MOST and 1 <= query.first <= MOST):
        message = f"a page of {query.limit} flows with {query.first} jobs of each"
        raise InvalidValue(message, hint=f"from 1 to {MOST} of both")
    if query.cursor is None:
        return -1
    digits = query.cursor.isascii() and query.cursor.isdigit() and len(query.cursor) <= 10
    if not digits or int(query.cursor) > LAST:
        message = f"the cursor {query.cursor!r} is not one of this listing"
        raise InvalidValue(message, hint="pass the cursor of the page before")
    return int(query.cursor)


def read_flows(ledger: Ledger, query: FlowsQuery) -> Page[WaitingFlow]:
    """Return a page of flows, by number.

    Raises:
        InvalidValue: the page is too large, or the cursor belongs to another listing.
    """
    after, gate, jobs = check_flows(query), query.gate, ledger.jobs
    rows: list[WaitingFlow] = []
    if gate is None:
        numbers = jobs.flows_waiting(query.lane, after, query.limit)
        counts = jobs.waiting_counts(query.lane, numbers, COUNTED)
        for number in numbers:
            ids = [head.id for head in jobs.heads(number, query.first)]
            rows.append(_view(ledger, number, None, ids, counts.get(number, 0)))
    else:
        rows += _unfit(ledger, gate, query.first) if after < 0 else []
        numbers = jobs.parked_flows(gate, after, query.limit)
        parked = jobs.parked_ids(gate, numbers, query.first)
        rows += [_view(ledger, one, gate, parked[one]) for one in numbers if one in parked]
    more = len(numbers) == query.limit
    return Page(rows=tuple(rows), cursor=str(numbers[-1]) if more else None)


def _unfit(ledger: Ledger, gate: str, limit: int) -> list[WaitingFlow]:
    """Return the first unfit jobs of a gate, by flow."""
    ids = ledger.jobs.unfit_at(gate, limit)
    found = ledger.jobs.load(ids)
    flows: dict[int, list[str]] = {}
    for one in ids:
        flows.setdefault(found[one].flow, []).append(one)
    return [_view(ledger, number, gate, some, unfit=True) for number, some in flows.items()]


def _view(
    ledger: Ledger,
    number: int,
    gate: str | None,
    ids: Sequence[str],
    count: int | None = None,
    *,
    unfit: bool = False,
) -> WaitingFlow:
    flow = ledger.jobs.flow(number)
    return WaitingFlow(
        lane=flow.lane,
        tenant=flow.tenant,
        kind=flow.kind,
        shared=flow.shared,
        parked_at=gate,
        unfit=unfit,
        count=len(ids) if count is None else count,
        first=tuple(ids),
    )
