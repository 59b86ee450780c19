"""The families of metrics: their names, kinds and labels, told once for code and reference.

Source: Prometheus, "Metric and label naming": base units, `_total` for what is counted, and the sum
or the mean over all labels of a family means something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Metrics of one name.

    Attributes:
        name: with its unit, and `_total` if it is a counter.
        kind: of Prometheus.
        help: what it tells.
        labels: that tell its metrics apart.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name=f"headway_{name}", kind="gauge", help=text, labels=labels)


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name=f"headway_{name}_total", kind="counter", help=text, labels=labels)


BUILD = _gauge("build_info", "Always 1; which version this is.", "version")
STORE_UP = _gauge("store_up", "Whether the store answered: 1 or 0; with 0, most others are away.")
STORE_EPOCH = _gauge("store_epoch", "How often the store was given a new epoch.")
STORE_AHEAD = _gauge(
    "store_time_ahead_seconds", "By how much the store's time is ahead of its clock."
)
SWEEP_LAG = _gauge(
    "sweep_lag_seconds",
    "For how long a lease has been over whose runs no sweep has ended; 0 for none.",
)
JOBS = _gauge("jobs", "Jobs by lane and state, as stored.", "lane", "state")
OLDEST = _gauge(
    "lane_oldest_due_age_seconds",
    "How long the waiting job that was due first has been due; 0 if nothing waits.",
    "lane",
)
LANE_PAUSED = _gauge("lane_paused", "Whether the lane is paused: 1 or 0.", "lane")
LANE_WORKERS = _gauge("lane_workers", "Live workers that serve the lane.", "lane")
LATENCY = _gauge(
    "lane_latency_seconds",
    "From due to start, of the newest 100 first starts of the last hour; of lanes with a target.",
    "lane",
    "quantile",
)
LATENCY_TARGET = _gauge("lane_latency_target_seconds", "The lane's latency target.", "lane")
LATENCY_BREACHED = _gauge(
    "lane_latency_breached", "Whether the lane misses its target: 1 or 0.", "lane"
)
GATES = _gauge("gates", "Gates that are declared, capped, closed or held, by template.", "gate")
GATES_CLOSED = _gauge("gates_closed", "Those of which no permit could be taken now.", "gate")
GATE_USED = _gauge("gate_used", "Permits out, or starts in the window of a rate.", "gate")
GATE_CAPACITY = _gauge(
    "gate_capacity", "Permits, or the limit of a rate; only where there is one.", "gate"
)
GATE_PARKED = _gauge("gate_parked", "Jobs parked, counted to 1000 for each gate.", "gate")
GATES_CUT = _gauge("gates_cut", "Whether there are more gates than were looked at: 1 or 0.")
WORKERS = _gauge("workers", "Workers that live.")
WORKER_RUNS = _gauge("worker_runs", "Runs that live workers hold.")
LONG_POLLS = _gauge("long_polls", "Long polls that wait at this server.")
EVENT_STREAMS = _gauge("event_streams", "Event streams that this server feeds.")
REQUESTS = _counter(
    "http_requests", "Requests that this server answered.", "route", "method", "status"
)
DURATIONS = Family(
    name="headway_http_request_duration_seconds",
    kind="histogram",
    help="From a request to the end of its reply, waiting included; not of event streams.",
    labels=("route", "method"),
)

TOTALS = {
    "enqueued": _counter("jobs_enqueued", "Jobs made."),
    "started": _counter("runs_started", "Runs started."),
    "succeeded": _counter("jobs_succeeded", "Jobs that succeeded."),
    "failed": _counter("runs_failed", "Attempts that failed."),
    "retried": _counter("runs_retried", "Failed attempts that were given another."),
    "dead": _counter("jobs_dead", "Jobs that died."),
    "cancelled": _counter("jobs_cancelled", "Jobs that were cancelled."),
    "lost": _counter("runs_lost", "Runs whose lease ended."),
    "snoozed": _counter("runs_snoozed", "Runs that asked to be repeated later."),
    "handed_over": _counter("runs_handed_over", "Runs that were handed over."),
    "parked": _counter("jobs_parked", "Times that a job was parked at a gate."),
    "fed": _counter("jobs_fed", "Times that a parked job was fed."),
    "folded": _counter("fires_folded", "Fires of the timetable folded into an earlier one."),
    "signals": _counter("signals", "Signals that were applied, or came too late."),
    "late_signals": _counter("signals_late", "Signals that came too late."),
}
"""The totals of the store since it was made, by their names there."""

FAMILIES: tuple[Family, ...] = (
    BUILD,
    STORE_UP,
    STORE_EPOCH,
    STORE_AHEAD,
    SWEEP_LAG,
    JOBS,
    *TOTALS.values(),
    OLDEST,
    LANE_PAUSED,
    LANE_WORKERS,
    LATENCY,
    LATENCY_TARGET,
    LATENCY_BREACHED,
    GATES,
    GATES_CLOSED,
    GATE_USED,
    GATE_CAPACITY,
    GATE_PARKED,
    GATES_CUT,
    WORKERS,
    WORKER_RUNS,
    LONG_POLLS,
    EVENT_STREAMS,
    REQUESTS,
    DURATIONS,
)
"""All of them, in the order of the reference."""
