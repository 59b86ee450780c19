"""Intakes: how many requests that brought leads were answered, and how many of them failed."""

from __future__ import annotations

from headway.runtime.timing import Timing
from headway.server.metrics.families import REQUESTS
from headway.server.metrics.request_metrics import RequestMetrics
from headway.systems.calls.seen.tally import Event, Tally

EACH_S = 2.0
ROUTE = "/leads"


class Intakes:
    """Adds what this server has counted of its requests to the tally."""

    def __init__(self, requests: RequestMetrics, tally: Tally, timing: Timing) -> None:
        """Has noted nothing.

        Args:
            requests: counted by this server since it started.
            tally: where all servers add theirs up.
            timing: for the pauses.
        """
        self._requests = requests
        self._tally = tally
        self._timing = timing
        self._noted = {Event.INTAKE: 0, Event.INTAKE_FAILED: 0}

    async def run(self) -> None:
        """Notes now and then until it is cancelled."""
        while True:
            await self._timing.pause(EACH_S)
            self.note()

    def note(self) -> None:
        """Notes what came since the last time."""
        for event, count in self._counted().items():
            if count > self._noted[event]:
                self._tally.happened(event, times=count - self._noted[event])
                self._noted[event] = count

    def _counted(self) -> dict[Event, int]:
        counted = {Event.INTAKE: 0, Event.INTAKE_FAILED: 0}
        for metric in self._requests.registry.collect():
            for sample in metric.samples:
                labels = sample.labels
                if sample.name != REQUESTS.name or labels.get("method") != "POST":
                    continue
                if labels.get("route") == ROUTE:
                    counted[Event.INTAKE] += int(sample.value)
                    if labels.get("status", "") >= "500":
                        counted[Event.INTAKE_FAILED] += int(sample.value)
        return counted
