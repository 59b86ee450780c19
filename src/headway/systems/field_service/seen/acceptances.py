"""Acceptances: how long the requests of the last hour waited until somebody took them."""

from __future__ import annotations

from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView
from headway.core.state import State
from headway.server.for_callers.bounded_page import bounded_page
from headway.systems.field_service.names import OFFER
from headway.systems.field_service.request import read_request
from headway.systems.field_service.standing import acceptor, dispatched_at

RECENT_MS = 3_600_000
"""An acceptance that is longer ago says nothing about now."""
NEWEST = 250
"""Requests that somebody has, and completed ones, that are looked at: the newest of each."""


async def times_to_accept(store: Store, now: int) -> list[int]:
    """From a request, or its last dispatch, to its acceptance, in ms; in growing order.

    Args:
        store: where the requests are jobs.
        now: the store's time, ms UTC.

    Raises:
        StoreError: the store cannot tell now.
    """
    found: list[int] = []
    for state in (State.AWAITING, State.SUCCEEDED):
        query = JobsQuery(kind=OFFER, states=(state,), trail=True, newest=True, limit=NEWEST)
        for job in (await bounded_page(store, query)).rows:
            accepted_at = _accepted_at(job)
            if accepted_at is not None and accepted_at >= now - RECENT_MS:
                found.append(max(0, accepted_at - dispatched_at(job)))
    return sorted(found)


def _accepted_at(job: JobView) -> int | None:
    who = acceptor(job)
    assigned = read_request(job.args).assigned
    if not who or job.cascade is None or (assigned is not None and assigned.to == who):
        return None
    return job.cascade.asked[-1].at
