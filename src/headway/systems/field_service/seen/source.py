"""The source of the metrics of service requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import Metric

from headway.contract.store import Store
from headway.core.state import State
from headway.runtime.latency import percentile
from headway.server.metrics.families import Family
from headway.server.metrics.samples import Samples, one
from headway.server.overview import Overview
from headway.systems.field_service.names import OFFERS
from headway.systems.field_service.seen import families
from headway.systems.field_service.seen.acceptances import times_to_accept
from headway.systems.field_service.seen.tally import OFFER, OfferEnd, Tally

QUANTILES = (("0.5", 50), ("0.95", 95), ("0.99", 99))


class FieldMetrics:
    """The metrics of service requests."""

    def __init__(self, store: Store, tally: Tally) -> None:
        """Reads nothing yet.

        Args:
            store: where requests are jobs.
            tally: how offers ended.
        """
        self._store = store
        self._tally = tally

    @property
    def families(self) -> Sequence[Family]:
        """See `Source.families`."""
        return families.FAMILIES

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """See `Source.metrics`; without a store, what was counted is told all the same.

        Raises:
            StoreError: the directory was never read, or the store cannot tell now.
        """
        totals = await self._tally.totals()
        offers = Samples(families.OFFERS)
        for end in OfferEnd:
            offers.put(totals.get((OFFER, end), 0), end)
        found = [offers.metric()]
        if overview is None:
            return found
        times = await times_to_accept(self._store, overview.stats.now)
        waits = Samples(families.TIME_TO_ACCEPT, max)
        for quantile, percent in QUANTILES:
            ms = percentile(times, percent)
            if ms is not None:
                waits.put(ms / 1000, quantile)
        lane = next((lane for lane in overview.lanes if lane.name == OFFERS), None)
        pending = 0 if lane is None else lane.counts.get(State.DEAD, 0)
        return [*found, waits.metric(), one(families.PENDING, pending)]
