"""The metrics of a system: counters of its tally, and gauges read from the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric

from headway.runtime.latency import percentile
from headway.server.metrics.families import Family
from headway.server.metrics.samples import Labels, Samples
from headway.server.overview import Overview
from headway.systems.directory.tally import Tally, Totals, by_label, by_parts

COUNTED = "counted by all processes in the directory, each a second later"
"""What the help of each counter of a tally says."""
QUANTILES = (("0.5", 50), ("0.95", 95), ("0.99", 99))


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """A family that counts an event of the tally.

    Attributes:
        family: a counter; with several labels, the tally's label holds them all, joined by `:`.
        labels: shown even if nothing was counted under them; empty for only those counted.
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
        found = by_label(totals, self.event)
        if len(self.family.labels) > 1:
            for label, times in found.items():
                samples.put(times, *label.split(":"))
            return samples.metric()
        named = Labels(found)
        for label in self.labels or found:
            samples.put(found.get(label, 0), label if self.labels else named.of(label))
        return samples.metric()


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedTimes:
    """A histogram of times in seconds, with one label, of what the tally has counted.

    Attributes:
        event: of the tally; its labels are the family's and, after a `:`, the bound in ms that a
            time was not above, or `inf`.
        sum_event: adds up the ms themselves, under the family's label.
        bounds_ms: in growing order, `inf` left out.
    """

    event: str
    sum_event: str
    family: Family
    bounds_ms: Sequence[int]

    def metric(self, totals: Totals) -> Metric:
        """As the library takes it."""
        family = self.family
        metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for name, counts in sorted(by_parts(by_label(totals, self.event)).items()):
            reached = [counts.get(str(bound), 0) for bound in self.bounds_ms]
            buckets: list[tuple[str, float]] = [
                (str(bound / 1000), total)
                for bound, total in zip(self.bounds_ms, accumulate(reached), strict=True)
            ]
            total_s = totals.get((self.sum_event, name), 0) / 1000
            metric.add_metric([name], [*buckets, ("+Inf", sum(counts.values()))], total_s)
        return metric


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemMetrics:
    """The metrics of a system; see `headway.server.metrics`.

    Attributes:
        families: all of them, in the order of the reference.
        counted: the families of the tally.
        look: returns the others, at a bounded cost.
    """

    families: Sequence[Family]
    tally: Tally
    counted: Sequence[Counted | CountedTimes]
    look: Callable[[Overview], Awaitable[Iterable[Metric]]]

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """See `Source.metrics`; without a store, the counters are still returned.

        Raises:
            StoreError: the directory was never read, or the store cannot be read now.
        """
        totals = await self.tally.totals()
        found = [one.metric(totals) for one in self.counted]
        return found if overview is None else [*found, *await self.look(overview)]


def quantiles(family: Family, times_ms: Sequence[int]) -> Metric:
    """A family of the label `quantile`, in seconds."""
    samples = Samples(family, max)
    for quantile, percent in QUANTILES:
        ms = percentile(times_ms, percent)
        if ms is not None:
            samples.put(ms / 1000, quantile)
    return samples.metric()
