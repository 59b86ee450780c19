"""The source of the metrics of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import Metric

from headway.contract.store import Store
from headway.runtime.latency import percentile
from headway.server.metrics.families import Family
from headway.server.metrics.samples import Labels, Samples, one
from headway.server.overview import Overview
from headway.systems.calls.seen import families
from headway.systems.calls.seen.backlog import look_at_backlog
from headway.systems.calls.seen.dials import Dials, look_at_dials
from headway.systems.calls.seen.lines import LinePool, look_at_lines, without_number
from headway.systems.calls.seen.sight import lane_of, workers_of
from headway.systems.calls.seen.tally import Event, Tally
from headway.systems.directory.tally import Totals

QUANTILES = (("0.5", 50), ("0.95", 95), ("0.99", 99))
_BY_EVENT = {
    Event.OUTCOME: families.OUTCOMES,
    Event.INTAKE: families.INTAKES,
    Event.INTAKE_FAILED: families.INTAKES_FAILED,
    Event.WEBHOOK_LOST: families.LOST,
    Event.WEBHOOK_LATE: families.LATE,
    Event.WEBHOOK_TWICE: families.TWICE,
    Event.WEBHOOK_ORPHAN: families.ORPHAN,
    Event.REPORT_FAILED: families.REPORTS_FAILED,
}


class CallMetrics:
    """The metrics of calls."""

    def __init__(self, store: Store, tally: Tally) -> None:
        """Reads nothing yet.

        Args:
            store: where leads are jobs, and lines gates.
            tally: what was counted besides.
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
        found = list(_of_totals(await self._tally.totals()))
        if overview is None:
            return found
        pools = await look_at_lines(self._store)
        backlog = await look_at_backlog(self._store, lane_of(overview))
        found += _of_lines(pools)
        found += _of_dials(await look_at_dials(self._store, overview.stats.now))
        now = overview.stats.now
        live = sum(worker.lease_until > now for worker in workers_of(overview))
        return [
            *found,
            one(families.OVERDUE, backlog.overdue),
            one(families.READY, backlog.ready),
            one(families.LARGEST, backlog.largest[1]),
            one(families.WITHOUT_NUMBER, len(without_number(pools, backlog.by_gate))),
            one(families.WORKERS, live),
        ]


def _of_totals(totals: Totals) -> Iterator[Metric]:
    for event, family in _BY_EVENT.items():
        samples = Samples(family)
        if not family.labels:
            samples.put(totals.get((event, ""), 0))
        labels = {label: times for (each, label), times in totals.items() if each == event}
        named = Labels(labels)
        for label, times in labels.items() if family.labels else ():
            samples.put(times, named.of(label))
        yield samples.metric()


def _of_lines(pools: Iterable[LinePool]) -> Iterator[Metric]:
    lines = [(pool, line) for pool in pools for line in pool.lines]
    labels = Labels(line.number for _, line in lines)
    capacity, used = Samples(families.LINES), Samples(families.LINES_USED)
    usable = Samples(families.NUMBER_USABLE, max)
    for pool, line in lines:
        label = labels.of(line.number)
        capacity.put(line.capacity, label)
        used.put(line.used, label)
        usable.put(line.usable and not pool.closed, label)
    yield from (some.metric() for some in (capacity, used, usable))


def _of_dials(dials: Dials) -> Iterator[Metric]:
    for family, times in (
        (families.DUE_TO_DIAL, dials.due_to_dial_ms),
        (families.GATE_WAIT, dials.gate_wait_ms),
    ):
        samples = Samples(family, max)
        for quantile, percent in QUANTILES:
            ms = percentile(times, percent)
            if ms is not None:
                samples.put(ms / 1000, quantile)
        yield samples.metric()
