"""Listings: a bounded page, a place in a flow, the oldest waiting job."""

from __future__ import annotations

import json
from collections.abc import Sequence

from headway.contract.views import JobsQuery
from headway.core.errors import InvalidValue
from headway.core.flow import Order
from headway.stores.ledger.rows import JobRow
from headway.stores.memory.jobs.starting import JobStarting

LOOKED_AT = 5_000
"""Rows that one page of a listing examines."""


class JobListing(JobStarting):
    """The part of the job table with listings."""

    def place(self, flow: int, order: Order, limit: int) -> int:
        return min(limit, self._index.bucket("waiting", flow).bisect_left(order))

    def waiting_counts(self, lane: str, flows: Sequence[int], limit: int) -> dict[int, int]:
        del lane
        return {flow: min(limit, len(self._index.bucket("waiting", flow))) for flow in flows}

    def oldest_due(self, lanes: Sequence[str]) -> dict[str, int]:
        flows = {lane: self.flows_waiting(lane, -1, 16) for lane in lanes}
        return {
            lane: min(self._index.bucket("waiting", flow)[0].due_at for flow in some)
            for lane, some in flows.items()
            if some
        }

    def page(self, query: JobsQuery) -> tuple[list[JobRow], str | None]:
        if query.subject is not None:
            bucket = self._index.bucket("subject", (query.tenant or "", query.subject))
        else:
            bucket = self._index.bucket("all")
        start = _cursor(query.cursor)
        if query.newest:
            seqs = bucket.irange(maximum=start, inclusive=(True, False), reverse=True)
        else:
            seqs = bucket.irange(minimum=start, inclusive=(False, True))
        found: list[JobRow] = []
        last: int | None = None
        for looked, seq in enumerate(seqs):
            if len(found) == query.limit or looked == LOOKED_AT:
                return found, json.dumps(last)
            last = seq
            row = self._rows[seq]
            if _matches(row, query):
                found.append(row.clone())
        return found, None


def _cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isdigit():
        message = f"the cursor {cursor!r} is not one of this listing"
        raise InvalidValue(message, hint="pass the cursor of the page before")
    return int(cursor)


def _matches(row: JobRow, query: JobsQuery) -> bool:
    return (
        (not query.states or row.state in query.states)
        and (query.lane is None or row.lane == query.lane)
        and (query.tenant is None or row.tenant == query.tenant)
        and (query.kind is None or row.kind == query.kind)
    )
