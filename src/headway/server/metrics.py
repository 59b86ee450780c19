"""Metrics for Prometheus: families, samples of a store, and the scrape of a server.

The number of labels of a family is bounded.

Source: Prometheus, "Metric and label naming": base units, `_total` for counters, and the sum or
the average over all labels of a family is meaningful.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.types import Scope

from headway.contract.store import Store
from headway.contract.views import GateState, LaneView, StatsView, WorkerView
from headway.core.errors import StoreError
from headway.runtime.latency import LaneLatency, lane_latencies
from headway.runtime.timing import Timing
from headway.server.overview import Overview, read_overview

_Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A metric family.

    Attributes:
        name: with its unit, and `_total` if it is a counter.
    """

    name: str
    kind: _Kind
    help: str
    labels: tuple[str, ...] = ()


class Families(list[Family]):
    """Families in the order of their definitions, which is also that of the reference."""

    def gauge(self, name: str, text: str, *labels: str) -> Family:
        """Add a gauge family, with `headway_` before its name."""
        return self._add("gauge", name, text, labels)

    def counter(self, name: str, text: str, *labels: str) -> Family:
        """Add a counter family, with `headway_` before its name and `_total` after it."""
        return self._add("counter", f"{name}_total", text, labels)

    def histogram(self, name: str, text: str, *labels: str) -> Family:
        """Add a histogram family, with `headway_` before its name."""
        return self._add("histogram", name, text, labels)

    def _add(self, kind: _Kind, name: str, text: str, labels: tuple[str, ...]) -> Family:
        self.append(Family(name=f"headway_{name}", kind=kind, help=text, labels=labels))
        return self[-1]


FAMILIES = Families()
"""All families of the engine."""
gauge, counter, histogram = FAMILIES.gauge, FAMILIES.counter, FAMILIES.histogram

BUILD = gauge("build_info", "Always 1; the label has the version.", "version")
STORE_UP = gauge(
    "store_up", "Whether the store responded: 1 or 0; with 0, most other metrics are missing."
)
STORE_EPOCH = gauge("store_epoch", "How often the store got a new epoch.")
STORE_AHEAD = gauge(
    "store_time_ahead_seconds", "By how much the store's time is ahead of its clock."
)
SWEEP_LAG = gauge(
    "sweep_lag_seconds",
    "How long ago the oldest lease ended whose runs no sweep has ended yet; 0 for none.",
)
JOBS = gauge("jobs", "Jobs by lane and state, as stored.", "lane", "state")
TOTALS = {
    "enqueued": counter("jobs_enqueued", "Jobs created."),
    "started": counter("runs_started", "Runs started."),
    "succeeded": counter("jobs_succeeded", "Jobs that succeeded."),
    "failed": counter("runs_failed", "Attempts that failed."),
    "retried": counter("runs_retried", "Failed attempts that were followed by another."),
    "dead": counter("jobs_dead", "Jobs that died."),
    "cancelled": counter("jobs_cancelled", "Jobs that were cancelled."),
    "lost": counter("runs_lost", "Runs whose lease ended."),
    "snoozed": counter("runs_snoozed", "Runs that asked to be repeated later."),
    "handed_over": counter("runs_handed_over", "Runs that were handed over."),
    "parked": counter("jobs_parked", "Times that a job was parked at a gate."),
    "fed": counter("jobs_fed", "Times that a parked job was fed."),
    "folded": counter("fires_folded", "Fires of the timetable folded into an earlier one."),
    "signals": counter("signals", "Signals that were applied, or arrived too late."),
    "late_signals": counter("signals_late", "Signals that arrived too late."),
}
"""Totals since the store was created, by their names in the store."""
OLDEST = gauge(
    "lane_oldest_due_age_seconds",
    "How long the oldest waiting job has been due; 0 if none is waiting.",
    "lane",
)
LANE_PAUSED = gauge("lane_paused", "Whether the lane is paused: 1 or 0.", "lane")
LANE_WORKERS = gauge("lane_workers", "Live workers that serve the lane.", "lane")
LATENCY = gauge(
    "lane_latency_seconds",
    "Time from due to start, for the newest 100 first starts of the last hour; only for lanes with "
    "a target.",
    "lane",
    "quantile",
)
LATENCY_TARGET = gauge("lane_latency_target_seconds", "The lane's latency target.", "lane")
LATENCY_BREACHED = gauge(
    "lane_latency_breached", "Whether the lane misses its target: 1 or 0.", "lane"
)
GATES = gauge("gates", "Gates that are declared, capped, closed or held, by template.", "gate")
GATES_CLOSED = gauge("gates_closed", "Gates of which no permit could be taken now.", "gate")
GATE_USED = gauge("gate_used", "Permits held, or starts in the window of a rate.", "gate")
GATE_CAPACITY = gauge(
    "gate_capacity", "Permits, or the limit of a rate; only if there is one.", "gate"
)
GATE_PARKED = gauge("gate_parked", "Jobs parked, counted up to 1000 for each gate.", "gate")
GATES_CUT = gauge("gates_cut", "Whether there are more gates than were examined: 1 or 0.")
WORKERS = gauge("workers", "Live workers.")
WORKER_RUNS = gauge("worker_runs", "Runs that live workers hold.")
ALERTS_LEADS = gauge("alerts_leads", "Whether this server is the one that sends alerts: 1 or 0.")
LONG_POLLS = gauge("long_polls", "Long polls that wait at this server.")
EVENT_STREAMS = gauge("event_streams", "Event streams that this server sends.")
REQUESTS = counter(
    "http_requests", "Requests that this server replied to.", "route", "method", "status"
)
DURATIONS = histogram(
    "http_request_duration_seconds",
    "Time from a request to the end of its reply, including waits; without event streams.",
    "route",
    "method",
)


MOST_LABELS = 200
"""Maximum number of lanes or gate templates with their own label, in order of their names."""
OTHER = "other"
"""The label of all others."""
_TENANT = "tenant:"

Merge = Callable[[float, float], float]


class Samples:
    """The values of a family, one for each set of labels."""

    def __init__(self, family: Family, merge: Merge = float.__add__) -> None:
        """Start without values.

        Args:
            merge: combines two values with the same labels.
        """
        self._family = family
        self._merge = merge
        self._values: dict[tuple[str, ...], float] = {}

    def put(self, value: float, *labels: str) -> None:
        """Add a value, or merge it with the one with the same labels."""
        value = float(value)
        labels = tuple(map(_printable, labels))
        before = self._values.get(labels)
        self._values[labels] = value if before is None else self._merge(before, value)

    def metric(self) -> Metric:
        """Return the metric for prometheus_client."""
        kind = CounterMetricFamily if self._family.kind == "counter" else GaugeMetricFamily
        made = kind(self._family.name, self._family.help, labels=self._family.labels)
        for labels, value in self._values.items():
            made.add_metric(labels, value)
        return made


def one(family: Family, value: float, *labels: str) -> Metric:
    """Return a metric with a single value."""
    samples = Samples(family)
    samples.put(value, *labels)
    return samples.metric()


def of_overview(overview: Overview, latencies: Sequence[LaneLatency]) -> Iterator[Metric]:
    """Yield the metrics of a store."""
    yield from _of_stats(overview.stats)
    yield from _of_lanes(overview.lanes, overview.stats.now)
    yield from _of_latencies(latencies)
    yield from _of_gates(overview.gates)
    yield one(GATES_CUT, overview.more_gates)
    yield from _of_workers(overview.workers, overview.stats.now)


def _of_stats(stats: StatsView) -> Iterator[Metric]:
    yield one(STORE_EPOCH, stats.epoch)
    yield one(STORE_AHEAD, stats.clock_ahead_ms / 1000)
    for name, family in TOTALS.items():
        yield one(family, stats.totals.get(name, 0))


def _of_lanes(lanes: Iterable[LaneView], now: int) -> Iterator[Metric]:
    jobs, oldest = Samples(JOBS), Samples(OLDEST, max)
    paused, workers = Samples(LANE_PAUSED, max), Samples(LANE_WORKERS, max)
    lanes = list(lanes)
    labels = Labels(lane.name for lane in lanes)
    for lane in lanes:
        label = labels.of(lane.name)
        for state, count in lane.counts.items():
            jobs.put(count, label, state)
        age = 0 if lane.oldest_due_at is None else max(0, now - lane.oldest_due_at)
        oldest.put(age / 1000, label)
        paused.put(lane.paused, label)
        workers.put(lane.workers, label)
    yield from (some.metric() for some in (jobs, oldest, paused, workers))


def _of_latencies(latencies: Iterable[LaneLatency]) -> Iterator[Metric]:
    reached, target = Samples(LATENCY, max), Samples(LATENCY_TARGET, min)
    breached = Samples(LATENCY_BREACHED, max)
    for lane in latencies:
        if lane.target_ms is None:
            continue
        target.put(lane.target_ms / 1000, lane.lane)
        breached.put(lane.breached, lane.lane)
        for quantile, ms in (("0.5", lane.p50_ms), ("0.95", lane.p95_ms), ("1", lane.max_ms)):
            if ms is not None:
                reached.put(ms / 1000, lane.lane, quantile)
    yield from (some.metric() for some in (reached, target, breached))


def _of_gates(gates: Iterable[GateState]) -> Iterator[Metric]:
    count, closed = Samples(GATES), Samples(GATES_CLOSED)
    used, capacity = Samples(GATE_USED), Samples(GATE_CAPACITY)
    parked = Samples(GATE_PARKED)
    gates = list(gates)
    labels = Labels(gate_label(gate) for gate in gates)
    for gate in gates:
        label = labels.of(gate_label(gate))
        count.put(1, label)
        closed.put(not gate.open, label)
        used.put(gate.used, label)
        parked.put(gate.parked, label)
        if gate.capacity is not None:
            capacity.put(gate.capacity, label)
    yield from (some.metric() for some in (count, closed, used, capacity, parked))


def _of_workers(workers: Iterable[WorkerView], now: int) -> Iterator[Metric]:
    workers = list(workers)
    live = [worker for worker in workers if worker.lease_until > now]
    over = [now - worker.lease_until for worker in workers if worker.running and worker not in live]
    yield one(WORKERS, len(live))
    yield one(WORKER_RUNS, sum(worker.running for worker in live))
    yield one(SWEEP_LAG, max(over, default=0) / 1000)


def gate_label(gate: GateState) -> str:
    """Return the label of a gate: its template, because a name may contain a phone number."""
    if gate.template is not None:
        return gate.template
    return f"{_TENANT}{{tenant}}" if gate.name.startswith(_TENANT) else gate.name


def _printable(text: str) -> str:
    """Escape control characters, because metrics may be shown in a terminal."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode()
        for one in text
    )


class Labels:
    """Labels for an unbounded number of names."""

    def __init__(self, names: Iterable[str]) -> None:
        """Give the first names in order their own labels."""
        self._own = frozenset(sorted(set(names))[:MOST_LABELS])

    def of(self, name: str) -> str:
        """Return the label of a name."""
        return name if name in self._own else OTHER


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNKNOWN = "unknown"
"""The label of an unknown route or method."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class RequestMetrics:
    """Request counts and durations of a server.

    Attributes:
        registry: also contains the metrics of the process.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            REQUESTS.name, REQUESTS.help, REQUESTS.labels, registry=self.registry
        )
        self._durations = Histogram(
            DURATIONS.name,
            DURATIONS.help,
            DURATIONS.labels,
            registry=self.registry,
            buckets=BUCKETS,
        )

    def note(self, scope: Scope, status: int, seconds: float | None) -> None:
        """Count a finished request.

        Args:
            scope: the ASGI scope after routing.
            seconds: duration; None to record no duration.
        """
        route = getattr(scope.get("route"), "path", None) or UNKNOWN
        method = scope["method"] if scope["method"] in METHODS else UNKNOWN
        self._requests.labels(route, method, str(status)).inc()
        if seconds is not None:
            self._durations.labels(route, method).observe(seconds)


class MetricsSource(Protocol):
    """The metrics of a system."""

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """Return the current values, at a bounded cost.

        Args:
            overview: of the store; None if it does not respond.

        Raises:
            StoreError: the values cannot be read; the other metrics are still returned.
        """
        ...


PATIENCE_S = 5.0
"""Timeout of the store in a scrape; Prometheus gives up after ten seconds."""
SOURCES_S = 3.0
"""Additional timeout of all systems together in a scrape."""
MOST_TARGETS = 50
"""Maximum number of lanes whose latency is reported, in order of their names."""

_log = logging.getLogger("headway.server")


class MetricsScraper:
    """Collects the metrics of a server and its store; scrapes at the same time share one read.

    So a second Prometheus gets its reply in time, too, while the store does not respond.
    """

    def __init__(self, store: Store, timing: Timing, requests: RequestMetrics) -> None:
        self._store = store
        self._timing = timing
        self.requests = requests
        self._sources: list[MetricsSource] = []
        self._lock = asyncio.Lock()
        self._reads = 0
        self._found: list[Metric] = []

    def add(self, source: MetricsSource) -> None:
        """Add the metrics of a system; call this from the system's `start`."""
        self._sources.append(source)

    async def scrape(
        self, accept: str, *, long_polls: int, event_streams: int, leads: bool
    ) -> tuple[bytes, str]:
        """Return the metrics as text, and its media type, even if the store does not respond."""
        found = [
            one(BUILD, 1, metadata.version("headway")),
            one(LONG_POLLS, long_polls),
            one(EVENT_STREAMS, event_streams),
            one(ALERTS_LEADS, leads),
        ]
        reads = self._reads
        async with self._lock:
            if reads == self._reads:
                overview, metrics = await self._of_store()
                self._found = metrics + await self._of_sources(overview)
                self._reads += 1
        found += self._found
        registry = CollectorRegistry()
        registry.register(_Collected([*found, *self.requests.registry.collect()]))
        encode, media_type = choose_encoder(accept)
        return encode(registry), media_type

    async def _of_store(self) -> tuple[Overview | None, list[Metric]]:
        try:
            async with self._timing.limit(PATIENCE_S):
                overview = await read_overview(self._store)
                latencies = await lane_latencies(self._store, overview.targets[:MOST_TARGETS])
        except (StoreError, TimeoutError) as error:
            _log.warning("metrics: the store did not respond: %s", str(error) or "timeout")
            return None, [one(STORE_UP, 0)]
        return overview, [one(STORE_UP, 1), *of_overview(overview, latencies)]

    async def _of_sources(self, overview: Overview | None) -> list[Metric]:
        found: list[Metric] = []
        try:
            async with self._timing.limit(SOURCES_S):
                for source in self._sources:
                    found += await self._of_source(source, overview)
        except TimeoutError:
            _log.warning("metrics: the systems timed out")
        return found

    async def _of_source(self, source: MetricsSource, overview: Overview | None) -> list[Metric]:
        try:
            return list(await source.metrics(overview))
        except StoreError as error:
            _log.warning("metrics: a system failed: %s", error)
        except Exception:  # noqa: BLE001  (any bug)
            # A faulty system must not hide the others.
            _log.exception("metrics: a system failed")
        return []


class _Collected(Collector):
    """A collector of metrics that were read before."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self._found
