"""Samples: the metrics of a store, made of an overview, under a bounded number of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headway.contract.views import GateState, LaneView, StatsView, WorkerView
from headway.runtime.latency import LaneLatency
from headway.server.metrics import families
from headway.server.metrics.families import Family
from headway.server.overview import Overview

MOST_LABELS = 200
"""Lanes, or templates of gates, that have a label of their own: the first by name."""
OTHER = "other"
"""The label of all the rest."""
_TENANT = "tenant:"

Merge = Callable[[float, float], float]


class Samples:
    """The metrics of one family, one for each set of labels."""

    def __init__(self, family: Family, merge: Merge = float.__add__) -> None:
        """Gather none yet.

        Args:
            merge: makes one value of two under the same labels.
        """
        self._family = family
        self._merge = merge
        self._values: dict[tuple[str, ...], float] = {}

    def put(self, value: float, *labels: str) -> None:
        """Gather a value."""
        value = float(value)
        labels = tuple(map(_printable, labels))
        before = self._values.get(labels)
        self._values[labels] = value if before is None else self._merge(before, value)

    def metric(self) -> Metric:
        """As the library takes it."""
        kind = CounterMetricFamily if self._family.kind == "counter" else GaugeMetricFamily
        made = kind(self._family.name, self._family.help, labels=self._family.labels)
        for labels, value in self._values.items():
            made.add_metric(labels, value)
        return made


def one(family: Family, value: float, *labels: str) -> Metric:
    """Return a family of a single metric."""
    samples = Samples(family)
    samples.put(value, *labels)
    return samples.metric()


def of_overview(overview: Overview, latencies: Sequence[LaneLatency]) -> Iterator[Metric]:
    """Yield the metrics of a store."""
    yield from _of_stats(overview.stats)
    yield from _of_lanes(overview.lanes, overview.stats.now)
    yield from _of_latencies(latencies)
    yield from _of_gates(overview.gates)
    yield one(families.GATES_CUT, overview.more_gates)
    yield from _of_workers(overview.workers, overview.stats.now)


def _of_stats(stats: StatsView) -> Iterator[Metric]:
    yield one(families.STORE_EPOCH, stats.epoch)
    yield one(families.STORE_AHEAD, stats.clock_ahead_ms / 1000)
    for name, family in families.TOTALS.items():
        yield one(family, stats.totals.get(name, 0))


def _of_lanes(lanes: Iterable[LaneView], now: int) -> Iterator[Metric]:
    jobs, oldest = Samples(families.JOBS), Samples(families.OLDEST, max)
    paused, workers = Samples(families.LANE_PAUSED, max), Samples(families.LANE_WORKERS, max)
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
    reached, target = Samples(families.LATENCY, max), Samples(families.LATENCY_TARGET, min)
    breached = Samples(families.LATENCY_BREACHED, max)
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
    count, closed = Samples(families.GATES), Samples(families.GATES_CLOSED)
    used, capacity = Samples(families.GATE_USED), Samples(families.GATE_CAPACITY)
    parked = Samples(families.GATE_PARKED)
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
    yield one(families.WORKERS, len(live))
    yield one(families.WORKER_RUNS, sum(worker.running for worker in live))
    yield one(families.SWEEP_LAG, max(over, default=0) / 1000)


def gate_label(gate: GateState) -> str:
    """Return the label of a gate: its template, for names may hold a phone number or a tenant."""
    if gate.template is not None:
        return gate.template
    return f"{_TENANT}{{tenant}}" if gate.name.startswith(_TENANT) else gate.name


def _printable(text: str) -> str:
    """Return a text without control characters: what reads the metrics may be a terminal."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode()
        for one in text
    )


class Labels:
    """Labels for names of which there may be any number."""

    def __init__(self, names: Iterable[str]) -> None:
        """Give the first names by order their own labels."""
        self._own = frozenset(sorted(set(names))[:MOST_LABELS])

    def of(self, name: str) -> str:
        """Return the label of a name."""
        return name if name in self._own else OTHER
