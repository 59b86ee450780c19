"""The families of the metrics of service requests."""

from __future__ import annotations

from headway.server.metrics.families import Family, counter, gauge
from headway.systems.field_service.seen.tally import OfferEnd

OFFERS = counter(
    "field_service_offers",
    f"Offers that ended: {', '.join(OfferEnd)}; counted by all processes in the directory, each a "
    "second later, and one that ran out up to `line_wait` later.",
    "outcome",
)
TIME_TO_ACCEPT = gauge(
    "field_service_time_to_accept_seconds",
    "From a request, or its last dispatch, to its acceptance; of the acceptances of the last hour, "
    "of the newest 500 requests at most. What a dispatcher has assigned is left out.",
    "quantile",
)
PENDING = gauge("field_service_pending", "Requests that nobody takes: a dispatcher decides.")

FAMILIES: tuple[Family, ...] = (OFFERS, TIME_TO_ACCEPT, PENDING)
"""All of them, in the order of the reference."""
