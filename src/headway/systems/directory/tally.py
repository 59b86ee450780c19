"""The tally: counters of events that no job records, and the metrics made of them."""

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
"""Labels of one event that a process distinguishes; all others are counted as one."""
LONGEST_LABEL = 64
LATER_S = 1.0
"""How long after an event it is written, together with those that happened meanwhile."""
AGAIN_S = 10.0
"""How long until a directory that did not answer is asked again."""

_log = logging.getLogger("headway.directory")


Totals = Mapping[tuple[str, str], int]
"""How often, by event and label."""


def by_label(totals: Totals, event: str) -> dict[str, int]:
    """Return how often an event happened, by label."""
    return {label: times for (one, label), times in totals.items() if one == event}


class HasTotals(Protocol):
    """What was seen of a system."""

    @property
    def totals(self) -> Totals:
        """As the tally has them."""
        ...


def counts_of(event: str) -> Callable[[HasTotals], Mapping[str, int]]:
    """Return a reader of how often an event happened, by label, for a rule of alerts."""
    return lambda seen: by_label(seen.totals, event)


def by_parts(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return counts whose labels have two parts, joined by `:`, by the first and the second."""
    found: dict[str, dict[str, int]] = {}
    for label, times in counts.items():
        first, _, second = label.partition(":")
        found.setdefault(first, {})[second] = times
    return found


class Tally:
    """How often things happened.

    What happened in the second before a process is killed may be missing.

    Attributes:
        away: why the directory did not answer when it was read last; empty if it did.
    """

    def __init__(self, directory: Directory, timing: Timing, table: str) -> None:
        """Begin with nothing counted.

        Args:
            table: of the directory, with `event`, `label` and `times`; the first two are its key.
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
        self._alone = asyncio.Lock()

    def happened(self, event: str, label: str = "", times: int = 1) -> None:
        """Count; waits for nothing, and never fails.

        Args:
            times: how often, from 1.
        """
        self._pending[str(event), self._bounded(event, label)] += times
        if self._flushing is not None and not self._flushing.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # What runs in no loop is written with what happens next.
            return
        self._flushing = loop.create_task(self._flush_soon(), name="tally")

    async def flush(self) -> None:
        """Write what is pending.

        Raises:
            StoreUnavailable: the directory is away; all of it stays pending.
        """
        async with self._alone:
            await self._flush()

    async def totals(self) -> Totals:
        """Return how often each happened, ever: as last read, if the directory is away.

        Raises:
            StoreError: the directory is away, and was never read.
        """
        async with self._alone:
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
        """Write what is pending, if the directory is there."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        try:
            await self.flush()
        except StoreError as error:
            _log.warning("what was counted is given up: %s", error)

    async def _flush(self) -> None:
        if not self._pending:
            return
        # In one order, so that processes that write at once wait for each other in no circle.
        taken = sorted(self._pending.items())
        async with self._directory.change() as session:
            for (event, label), times in taken:
                await session.execute(self._add, {"event": event, "label": label, "times": times})
        self._pending -= Counter(dict(taken))

    async def _flush_soon(self) -> None:
        pause, warned = LATER_S, False
        while self._pending:
            await self._timing.pause(pause)
            try:
                await self.flush()
            except StoreError as error:
                pause = AGAIN_S
                if not warned:
                    _log.warning("what was counted cannot be written: %s", error)
                warned = True

    def _bounded(self, event: str, label: str) -> str:
        own = label[:LONGEST_LABEL]
        labels = self._labels.setdefault(event, set())
        if own in labels:
            return own
        if len(labels) >= MOST_LABELS:
            return OTHER
        labels.add(own)
        return own


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
    """Return a family of the label `quantile`, in seconds."""
    samples = Samples(family, max)
    for quantile, percent in QUANTILES:
        ms = percentile(times_ms, percent)
        if ms is not None:
            samples.put(ms / 1000, quantile)
    return samples.metric()
