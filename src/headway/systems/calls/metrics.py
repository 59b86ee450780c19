"""The metrics of calls, and the start of their observability on a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from headway.contract.store import Store
from headway.runtime.timing import Timing
from headway.server.alerts.rule_set import Facts, RuleSet
from headway.server.metrics import REQUESTS, Families, Labels, RequestMetrics, Samples, one
from headway.server.overview import Overview
from headway.server.service import Service
from headway.systems.calls.alert_rules import Thresholds, call_rules
from headway.systems.calls.lead import LANE
from headway.systems.calls.overview import (
    CallsOverview,
    CountedEvent,
    LinePool,
    read_backlog,
    read_calls,
    read_dials,
    read_lines,
    without_number,
    workers_of,
)
from headway.systems.directory.tally import COUNTED, Counted, SystemMetrics, Tally, quantiles
from headway.systems.jobs import find_lane

_LATELY = "of the calls of the last five minutes, of the newest 500 leads at most"

FAMILIES = Families()
"""All metrics, in the order of the reference."""
gauge, counter = FAMILIES.gauge, FAMILIES.counter
DUE_TO_DIAL = gauge(
    "calls_due_to_dial_seconds",
    "From due to dial, without waits at gates as far as claims that found them closed show them; "
    f"{_LATELY}.",
    "quantile",
)
GATE_WAIT = gauge(
    "calls_gate_wait_seconds", f"The waits that were left out; {_LATELY}.", "quantile"
)
LINES = gauge("calls_lines", "Channels of the number; 0 for one that is switched off.", "number")
LINES_USED = gauge("calls_lines_used", "Channels of the number in use.", "number")
NUMBER_USABLE = gauge(
    "calls_number_usable", "Whether calls may be made from the number: 1 or 0.", "number"
)
OVERDUE = gauge("calls_overdue", "Leads that are due and waiting, including parked ones.")
READY = gauge(
    "calls_ready",
    "Of these, those that could go at once: every shared gate that they need is open; of many, by "
    "a sample.",
)
LARGEST = gauge(
    "calls_largest_reseller_ratio",
    "The largest share of waiting leads that belongs to one reseller, 0 to 1; 0 if no other "
    "reseller has any.",
)
WITHOUT_NUMBER = gauge(
    "calls_pools_without_number", "Pools with waiting leads, but without a usable number."
)
WORKERS = gauge("calls_workers", "Live workers that serve the lane of calls.")
_COUNTERS = {
    CountedEvent.OUTCOME: counter(
        "calls_attempts", f"Attempts that ended, by outcome; {COUNTED}.", "outcome"
    ),
    CountedEvent.INTAKE: counter("calls_intakes", f"Requests that contained leads; {COUNTED}."),
    CountedEvent.INTAKE_FAILED: counter(
        "calls_intakes_failed",
        f"Requests with leads that failed with a status of 500 or more; {COUNTED}.",
    ),
    CountedEvent.WEBHOOK_LOST: counter(
        "calls_webhooks_lost",
        f"Calls whose end had to be requested from the provider, or never became known; {COUNTED}.",
        "number",
    ),
    CountedEvent.WEBHOOK_LATE: counter(
        "calls_webhooks_late",
        f"Webhooks that arrived after their call was settled; {COUNTED}.",
        "number",
    ),
    CountedEvent.WEBHOOK_TWICE: counter(
        "calls_webhooks_twice", f"Repeated webhooks; {COUNTED}.", "number"
    ),
    CountedEvent.WEBHOOK_ORPHAN: counter(
        "calls_webhooks_orphan", f"Webhooks of unknown calls; {COUNTED}.", "provider"
    ),
    CountedEvent.REPORT_FAILED: counter(
        "calls_reports_failed", f"Failed attempts to report a result; {COUNTED}."
    ),
}

EACH_S = 2.0
ROUTE = "/leads"


class Intakes:
    """Adds this server's counts of intake requests to the tally."""

    def __init__(self, requests: RequestMetrics, tally: Tally, timing: Timing) -> None:
        """Start with counts of zero."""
        self._requests = requests
        self._tally = tally
        self._timing = timing
        self._noted = {CountedEvent.INTAKE: 0, CountedEvent.INTAKE_FAILED: 0}

    async def run(self) -> None:
        """Call `note` at intervals, until it is cancelled."""
        while True:
            await self._timing.pause(EACH_S)
            self.note()

    def note(self) -> None:
        """Add the requests since the last call."""
        for event, count in self._counted().items():
            if count > self._noted[event]:
                self._tally.happened(event, times=count - self._noted[event])
                self._noted[event] = count

    def _counted(self) -> dict[CountedEvent, int]:
        counted = {CountedEvent.INTAKE: 0, CountedEvent.INTAKE_FAILED: 0}
        for metric in self._requests.registry.collect():
            for sample in metric.samples:
                labels = sample.labels
                if sample.name != REQUESTS.name or labels.get("method") != "POST":
                    continue
                if labels.get("route") == ROUTE:
                    counted[CountedEvent.INTAKE] += int(sample.value)
                    if labels.get("status", "") >= "500":
                        counted[CountedEvent.INTAKE_FAILED] += int(sample.value)
        return counted


def call_metrics(store: Store, tally: Tally) -> SystemMetrics:
    """Return the metrics of calls."""

    async def read(overview: Overview) -> Iterable[Metric]:
        now = overview.stats.now
        pools = await read_lines(store)
        backlog = await read_backlog(store, find_lane(overview, LANE))
        dials = await read_dials(store, now)
        live = sum(worker.lease_until > now for worker in workers_of(overview))
        return [
            *_of_lines(pools),
            quantiles(DUE_TO_DIAL, dials.due_to_dial_ms),
            quantiles(GATE_WAIT, dials.gate_wait_ms),
            one(OVERDUE, backlog.overdue),
            one(READY, backlog.ready),
            one(LARGEST, backlog.largest[1]),
            one(WITHOUT_NUMBER, len(without_number(pools, backlog.by_gate))),
            one(WORKERS, live),
        ]

    counted = [Counted(event=event, family=family) for event, family in _COUNTERS.items()]
    return SystemMetrics(tally=tally, counted=counted, read=read)


def _of_lines(pools: Iterable[LinePool]) -> Iterator[Metric]:
    lines = [(pool, line) for pool in pools for line in pool.lines]
    labels = Labels(line.number for _, line in lines)
    capacity, used = Samples(LINES), Samples(LINES_USED)
    usable = Samples(NUMBER_USABLE, max)
    for pool, line in lines:
        label = labels.of(line.number)
        capacity.put(line.capacity, label)
        used.put(line.used, label)
        usable.put(line.usable and not pool.closed, label)
    yield from (some.metric() for some in (capacity, used, usable))


def start_observability(service: Service, tally: Tally, thresholds: Thresholds) -> None:
    """Add the alert rules and metrics of calls to a server, and count its intake requests."""

    async def see(facts: Facts) -> CallsOverview | None:
        return await read_calls(service.store, tally, facts)

    service.alerts.add(
        RuleSet(rules=lambda: call_rules(thresholds), read=see, runbooks=thresholds.runbooks)
    )
    service.scrapes.add(call_metrics(service.store, tally))
    intakes = Intakes(service.scrapes.requests, tally, service.timing)
    service.keep_running(intakes.run, "intake counts of calls")
