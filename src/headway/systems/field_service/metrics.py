"""The metrics of service requests, and how offers end."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from prometheus_client.core import Metric

from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView
from headway.core.state import State
from headway.server.finding import bounded_page
from headway.server.metrics import Families, one
from headway.server.overview import Overview
from headway.systems.directory.tally import COUNTED, Counted, SystemMetrics, Tally, quantiles
from headway.systems.field_service.request import (
    OFFER,
    OFFERS,
    acceptor,
    dispatched_at,
    is_request,
    read_request,
)
from headway.systems.jobs import find_lane

RECENT_MS = 3_600_000
"""Acceptances older than this are ignored."""
NEWEST = 250
"""Maximum assigned requests, and maximum completed ones, that are read: the newest of each."""
OFFER_ENDED = "offer"
"""Event of the tally; its label is an `OfferEnd`."""


class OfferEnd(StrEnum):
    """How an offer ended."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    MISSED = "missed"
    """The technician could not be reached."""
    TIMEOUT = "timeout"
    WITHDRAWN = "withdrawn"
    """A dispatcher withdrew or assigned the request."""


FAMILIES = Families()
"""All metrics, in the order of the reference."""
gauge, counter = FAMILIES.gauge, FAMILIES.counter
ENDED = counter(
    "field_service_offers",
    f"Offers that ended: {', '.join(OfferEnd)}; {COUNTED}, timeouts up to `line_wait` later.",
    "outcome",
)
TIME_TO_ACCEPT = gauge(
    "field_service_time_to_accept_seconds",
    "Time from a request, or its last dispatch, to its acceptance, for acceptances of the last "
    "hour among at most the newest 500 requests. Requests assigned by a dispatcher are excluded.",
    "quantile",
)
PENDING = gauge(
    "field_service_pending", "Requests that no technician has accepted and that need a dispatcher."
)


def field_metrics(store: Store, tally: Tally) -> SystemMetrics:
    """Return the metrics of service requests."""

    async def read(overview: Overview) -> Iterable[Metric]:
        times = await times_to_accept(store, overview.stats.now)
        lane = find_lane(overview, OFFERS)
        pending = 0 if lane is None else lane.counts.get(State.DEAD, 0)
        return [quantiles(TIME_TO_ACCEPT, times), one(PENDING, pending)]

    ended = Counted(event=OFFER_ENDED, family=ENDED, labels=tuple(OfferEnd))
    return SystemMetrics(tally=tally, counted=(ended,), read=read)


async def times_to_accept(store: Store, now: int) -> list[int]:
    """Return the times from a request, or its last dispatch, to its acceptance: ms, ascending.

    Args:
        now: the store's time, ms UTC.
    """
    found: list[int] = []
    for state in (State.AWAITING, State.SUCCEEDED):
        query = JobsQuery(
            kind=OFFER, lane=OFFERS, states=(state,), trail=True, newest=True, limit=NEWEST
        )
        for job in (await bounded_page(store, query, is_request)).rows:
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
