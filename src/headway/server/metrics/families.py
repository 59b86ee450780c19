"""The families of metrics: their names, kinds and labels, for the code and the reference.

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
        labels: that distinguish its metrics.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


def gauge(name: str, text: str, *labels: str) -> Family:
    """Return a gauge family, with `headway_` before its name."""
    return Family(name=f"headway_{name}", kind="gauge", help=text, labels=labels)


def counter(name: str, text: str, *labels: str) -> Family:
    """Return a counter family, with `headway_` before its name and `_total` after it."""
    return Family(name=f"headway_{name}_total", kind="counter", help=text, labels=labels)


BUILD = gauge("build_info", "Always 1; which version this is.", "version")
STORE_UP = gauge("store_up", "Whether the store answered: 1 or 0; with 0, most others are away.")
STORE_EPOCH = gauge("store_epoch", "How often the store was given a new epoch.")
STORE_AHEAD = gauge(
    "store_time_ahead_seconds", "By how much the store's time is ahead of its clock."
)
SWEEP_LAG = gauge(
    "sweep_lag_seconds",
    "For how long a lease has been over whose runs no sweep has ended; 0 for none.",
)
JOBS = gauge("jobs", "Jobs by lane and state, as stored.", "lane", "state")
OLDEST = gauge(
    "lane_oldest_due_age_seconds",
    "How long the waiting job that was due first has been due; 0 if nothing waits.",
    "lane",
)
LANE_PAUSED = gauge("lane_paused", "Whether the lane is paused: 1 or 0.", "lane")
LANE_WORKERS = gauge("lane_workers", "Live workers that serve the lane.", "lane")
LATENCY = gauge(
    "lane_latency_seconds",
    "From due to start, of the newest 100 first starts of the last hour; of lanes with a target.",
    "lane",
    "quantile",
)
LATENCY_TARGET = gauge("lane_latency_target_seconds", "The lane's latency target.", "lane")
LATENCY_BREACHED = gauge(
    "lane_latency_breached", "Whether the lane misses its target: 1 or 0.", "lane"
)
GATES = gauge("gates", "Gates that are declared, capped, closed or held, by template.", "gate")
GATES_CLOSED = gauge("gates_closed", "Those of which no permit could be taken now.", "gate")
GATE_USED = gauge("gate_used", "Permits out, or starts in the window of a rate.", "gate")
GATE_CAPACITY = gauge(
    "gate_capacity", "Permits, or the limit of a rate; only where there is one.", "gate"
)
GATE_PARKED = gauge("gate_parked", "Jobs parked, counted to 1000 for each gate.", "gate")
GATES_CUT = gauge("gates_cut", "Whether there are more gates than were looked at: 1 or 0.")
WORKERS = gauge("workers", "Workers that live.")
WORKER_RUNS = gauge("worker_runs", "Runs that live workers hold.")
ALERTS_LEADS = gauge("alerts_leads", "Whether this server is the one that alerts: 1 or 0.")
LONG_POLLS = gauge("long_polls", "Long polls that wait at this server.")
EVENT_STREAMS = gauge("event_streams", "Event streams that this server feeds.")
REQUESTS = counter(
    "http_requests", "Requests that this server answered.", "route", "method", "status"
)
DURATIONS = Family(
    name="headway_http_request_duration_seconds",
    kind="histogram",
    help="From a request to the end of its reply, waiting included; not of event streams.",
    labels=("route", "method"),
)

TOTALS = {
    "enqueued": counter("jobs_enqueued", "Jobs made."),
    "started": counter("runs_started", "Runs started."),
    "succeeded": counter("jobs_succeeded", "Jobs that succeeded."),
    "failed": counter("runs_failed", "Attempts that failed."),
    "retried": counter("runs_retried", "Failed attempts that were given another."),
    "dead": counter("jobs_dead", "Jobs that died."),
    "cancelled": counter("jobs_cancelled", "Jobs that were cancelled."),
    "lost": counter("runs_lost", "Runs whose lease ended."),
    "snoozed": counter("runs_snoozed", "Runs that asked to be repeated later."),
    "handed_over": counter("runs_handed_over", "Runs that were handed over."),
    "parked": counter("jobs_parked", "Times that a job was parked at a gate."),
    "fed": counter("jobs_fed", "Times that a parked job was fed."),
    "folded": counter("fires_folded", "Fires of the timetable folded into an earlier one."),
    "signals": counter("signals", "Signals that were applied, or came too late."),
    "late_signals": counter("signals_late", "Signals that came too late."),
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
    ALERTS_LEADS,
    LONG_POLLS,
    EVENT_STREAMS,
    REQUESTS,
    DURATIONS,
)
"""All of them, in the order of the reference."""
