"""The metrics of a system: what its tally counts, and what a look at the store tells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric

from headway.runtime.latency import percentile
from headway.server.metrics.families import Family
from headway.server.metrics.samples import Labels, Samples
from headway.server.overview import Overview
from headway.systems.directory.tally import Tally, Totals

QUANTILES = (("0.5", 50), ("0.95", 95), ("0.99", 99))


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """A family that tells how often an event of the tally happened.

    Attributes:
        event: of the tally.
        family: a counter, with one label or none.
        labels: that are told though nothing was counted under them; empty for those counted.
    """

    event: str
    family: Family
    labels: Sequence[str] = ()

    def metric(self, totals: Totals) -> Metric:
        """As the library takes it."""
        samples = Samples(self.family)
        if not self.family.labels:
            samples.put(totals.get((self.event, ""), 0))
            return samples.metric()
        found = {label: times for (one, label), times in totals.items() if one == self.event}
        named = Labels(found)
        for label in self.labels or found:
            samples.put(found.get(label, 0), label if self.labels else named.of(label))
        return samples.metric()


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemMetrics:
    """The metrics of a system; see `headway.server.metrics`.

    Attributes:
        families: all of them, in the order of the reference.
        tally: what is counted.
        counted: the families that the tally tells.
        look: tells the others, at a bounded cost.
    """

    families: Sequence[Family]
    tally: Tally
    counted: Sequence[Counted]
    look: Callable[[Overview], Awaitable[Iterable[Metric]]]

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """See `Source.metrics`; without a store, what was counted is told all the same.

        Raises:
            StoreError: the directory was never read, or the store cannot tell now.
        """
        totals = await self.tally.totals()
        found = [one.metric(totals) for one in self.counted]
        return found if overview is None else [*found, *await self.look(overview)]


def quantiles(family: Family, times_ms: Sequence[int]) -> Metric:
    """A family of the label `quantile`, in seconds.

    Args:
        family: of the metric.
        times_ms: in growing order.
    """
    samples = Samples(family, max)
    for quantile, percent in QUANTILES:
        ms = percentile(times_ms, percent)
        if ms is not None:
            samples.put(ms / 1000, quantile)
    return samples.metric()
