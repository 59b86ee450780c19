"""The tally: persistent counters of events that no job records, and metrics computed from them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from prometheus_client.core import HistogramMetricFamily, Metric
from sqlalchemy import text

from headway.core.errors import StoreError
from headway.runtime.latency import percentile
from headway.runtime.timing import Timing
from headway.server.metrics import Family, Labels, Samples
from headway.server.overview import Overview
from headway.systems.directory.database import Directory

OTHER = "other"
MOST_LABELS = 200
"""Maximum number of labels per event and process; further ones are counted as `OTHER`."""
LONGEST_LABEL = 64
FLUSH_DELAY_S = 1.0
"""Delay after an event before it is written, together with those that happened meanwhile."""
RETRY_DELAY_S = 10.0
"""Delay before a write is retried after the directory was unavailable."""

_log = logging.getLogger("headway.directory")


Totals = Mapping[tuple[str, str], int]
"""Counts by event and label."""


def by_label(totals: Totals, event: str) -> dict[str, int]:
    """Return the counts of an event by label."""
    return {label: times for (one, label), times in totals.items() if one == event}


class HasTotals(Protocol):
    """An observation of a system that includes its tally."""

    @property
    def totals(self) -> Totals:
        """The counts of the tally."""
        ...


def counts_of(event: str) -> Callable[[HasTotals], Mapping[str, int]]:
    """Return a function that reads the counts of an event by label, for an alert rule."""
    return lambda seen: by_label(seen.totals, event)


def by_parts(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return counts with labels of the form `first:second`, by the first and second part."""
    found: dict[str, dict[str, int]] = {}
    for label, times in counts.items():
        first, _, second = label.partition(":")
        found.setdefault(first, {})[second] = times
    return found


class Tally:
    """Event counters in a table of the directory, written in batches.

    Events of the last second before a process is killed may be lost.

    Attributes:
        away: error of the last read of the directory; empty if it succeeded.
    """

    def __init__(self, directory: Directory, timing: Timing, table: str) -> None:
        """Start without pending counts.

        Args:
            table: a table with the columns `event`, `label` and `times`; the first two are its key.
        """
        self._add = text(
            f"INSERT INTO {table} (event, label, times) VALUES (:event, :label, :times) "  # noqa: S608  (a name of this program)
            f"ON CONFLICT (event, label) DO UPDATE SET times = {table}.times + excluded.times"
        )
        self._read = text(f"SELECT event, label, times FROM {table}")  # noqa: S608  (as above)
        self._directory = directory
        self._timing = timing
        self.away = ""
        self._pending: Counter[tuple[str, str]] = Counter()
        self._labels: dict[str, set[str]] = {}
        self._written: Totals | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    def happened(self, event: str, label: str = "", times: int = 1) -> None:
        """Count an event; never blocks, and never fails.

        Args:
            times: how often it happened, at least 1.
        """
        self._pending[str(event), self._bounded_label(event, label)] += times
        if self._flushing is not None and not self._flushing.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Outside an event loop: written together with the next event inside one.
            return
        self._flushing = loop.create_task(self._flush_soon(), name="tally")

    async def flush(self) -> None:
        """Write the pending counts.

        Raises:
            StoreUnavailable: the directory is unavailable; all counts stay pending.
        """
        async with self._lock:
            await self._flush()

    async def totals(self) -> Totals:
        """Return all counts, including pending ones.

        If the directory is unavailable, the counts that were last read are used.

        Raises:
            StoreError: the directory is unavailable, and was never read.
        """
        async with self._lock:
            try:
                await self._flush()
                async with self._directory.read() as session:
                    rows = (await session.execute(self._read)).all()
                self._written = {(event, label): times for event, label, times in rows}
                self.away = ""
            except StoreError as error:
                self.away = error.message
                if self._written is None:
                    raise
            return Counter(self._written) + self._pending

    async def close(self) -> None:
        """Write the pending counts; drop them if the directory is unavailable."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        try:
            await self.flush()
        except StoreError as error:
            _log.warning("tally dropped error=%s", error)

    async def _flush(self) -> None:
        if not self._pending:
            return
        # Sorted, so that concurrent processes do not deadlock.
        taken = sorted(self._pending.items())
        async with self._directory.change() as session:
            for (event, label), times in taken:
                await session.execute(self._add, {"event": event, "label": label, "times": times})
        self._pending -= Counter(dict(taken))

    async def _flush_soon(self) -> None:
        pause, warned = FLUSH_DELAY_S, False
        while self._pending:
            await self._timing.pause(pause)
            try:
                await self.flush()
            except StoreError as error:
                pause = RETRY_DELAY_S
                if not warned:
                    _log.warning("tally not written error=%s", error)
                warned = True

    def _bounded_label(self, event: str, label: str) -> str:
        own = label[:LONGEST_LABEL]
        labels = self._labels.setdefault(event, set())
        if own in labels:
            return own
        if len(labels) >= MOST_LABELS:
            return OTHER
        labels.add(own)
        return own


COUNTED = "counted by all processes in the directory, each a second later"
"""Ends the help text of each counter of a tally."""
QUANTILES = (("0.5", 50), ("0.95", 95), ("0.99", 99))


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """A metric that shows the counts of one event.

    Attributes:
        family: a counter; if it has several labels, the tally's label contains them joined by `:`.
        labels: labels that are exported even if their count is 0; if empty, those counted.
    """

    event: str
    family: Family
    labels: Sequence[str] = ()

    def metric(self, totals: Totals) -> Metric:
        """Return the metric for the Prometheus client."""
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
    """A histogram in seconds with one label, computed from two events.

    Attributes:
        event: counts times by `label:bound`, where the bound is the upper bound of the bucket in
            ms, or `inf`.
        sum_event: adds up the times in ms, by label.
        bounds_ms: upper bounds in ascending order, without `inf`.
    """

    event: str
    sum_event: str
    family: Family
    bounds_ms: Sequence[int]

    def metric(self, totals: Totals) -> Metric:
        """Return the metric for the Prometheus client."""
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
        counted: metrics computed from the tally.
        read: returns the other metrics, at a bounded cost.
    """

    tally: Tally
    counted: Sequence[Counted | CountedTimes]
    read: Callable[[Overview], Awaitable[Iterable[Metric]]]

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """See `MetricsSource.metrics`; without an overview, only the counters are returned.

        Raises:
            StoreError: the directory was never read, or the store cannot be read now.
        """
        totals = await self.tally.totals()
        found = [one.metric(totals) for one in self.counted]
        return found if overview is None else [*found, *await self.read(overview)]


def quantiles(family: Family, times_ms: Sequence[int]) -> Metric:
    """Return the quantiles of times as a metric in seconds with the label `quantile`."""
    samples = Samples(family, max)
    for quantile, percent in QUANTILES:
        ms = percentile(times_ms, percent)
        if ms is not None:
            samples.put(ms / 1000, quantile)
    return samples.metric()
