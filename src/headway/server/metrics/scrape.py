"""A scrape: the metrics of a server, its store and its systems."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.contract.store import Store
from headway.core.errors import StoreError
from headway.runtime.latency import lane_latencies
from headway.runtime.timing import Timing
from headway.server.metrics import families
from headway.server.metrics.families import DURATIONS, REQUESTS, Family
from headway.server.metrics.samples import of_overview, one
from headway.server.overview import Overview, read_overview

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNKNOWN = "unknown"
"""The label of a route or a method that there is not."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class RequestMetrics:
    """Counts of one server's requests.

    Attributes:
        registry: where they are kept, with what the process uses.
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
        """Count a request that was answered.

        Args:
            scope: of the request, as the routes left it.
            seconds: that it took; None if that says nothing.
        """
        route = getattr(scope.get("route"), "path", None) or UNKNOWN
        method = scope["method"] if scope["method"] in METHODS else UNKNOWN
        self._requests.labels(route, method, str(status)).inc()
        if seconds is not None:
            self._durations.labels(route, method).observe(seconds)


class CountRequests:
    """Counts each request, also one that a guard refused."""

    def __init__(self, app: ASGIApp, *, metrics: RequestMetrics, timing: Timing) -> None:
        self._app = app
        self._metrics = metrics
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._timing.monotonic()
        status, streams = 500, False

        async def noted(message: Message) -> None:
            nonlocal status, streams
            if message["type"] == "http.response.start":
                status = int(message["status"])
                streams = any(
                    name == b"content-type" and value.startswith(b"text/event-stream")
                    for name, value in message["headers"]
                )
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            taken = None if streams else self._timing.monotonic() - began
            self._metrics.note(scope, status, taken)


class MetricsSource(Protocol):
    """Where the metrics of a system come from."""

    @property
    def families(self) -> Sequence[Family]:
        """All families it may report, for the reference."""
        ...

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """Return the current values, at a bounded cost.

        Args:
            overview: of the store; None if that does not answer.

        Raises:
            StoreError: it cannot be read now; the others are still shown.
        """
        ...


PATIENCE_S = 5.0
"""How long a scrape waits for the store; Prometheus gives up after ten seconds."""
SOURCES_S = 3.0
"""How long it waits for all sources of the systems besides."""
MOST_TARGETS = 50
"""Lanes with a target whose latency is looked at, the first by name."""

_log = logging.getLogger("headway.server")


class MetricsScraper:
    """Reads the metrics of a server and its store, one scrape at a time."""

    def __init__(self, store: Store, timing: Timing, requests: RequestMetrics) -> None:
        self._store = store
        self._timing = timing
        self.requests = requests
        self._sources: list[MetricsSource] = []
        self._alone = asyncio.Lock()

    def add(self, source: MetricsSource) -> None:
        """Add the metrics of a system; its `start` is the moment to do it."""
        self._sources.append(source)

    async def scrape(
        self, accept: str, *, long_polls: int, event_streams: int, leads: bool
    ) -> tuple[bytes, str]:
        """Return what Prometheus reads; also when the store does not answer.

        Returns:
            The text, and its media type.
        """
        found = [
            one(families.BUILD, 1, metadata.version("headway")),
            one(families.LONG_POLLS, long_polls),
            one(families.EVENT_STREAMS, event_streams),
            one(families.ALERTS_LEADS, leads),
        ]
        async with self._alone:
            overview, metrics = await self._of_store()
            found += metrics + await self._of_sources(overview)
        registry = CollectorRegistry()
        registry.register(_Found([*found, *self.requests.registry.collect()]))
        encode, media_type = choose_encoder(accept)
        return encode(registry), media_type

    async def _of_store(self) -> tuple[Overview | None, list[Metric]]:
        try:
            async with self._timing.limit(PATIENCE_S):
                overview = await read_overview(self._store)
                latencies = await lane_latencies(self._store, overview.targets[:MOST_TARGETS])
        except (StoreError, TimeoutError) as error:
            _log.warning("metrics: the store does not answer: %s", error or "timeout")
            return None, [one(families.STORE_UP, 0)]
        return overview, [one(families.STORE_UP, 1), *of_overview(overview, latencies)]

    async def _of_sources(self, overview: Overview | None) -> list[Metric]:
        found: list[Metric] = []
        try:
            async with self._timing.limit(SOURCES_S):
                for source in self._sources:
                    found += await self._of_source(source, overview)
        except TimeoutError:
            _log.warning("metrics: the systems take too long")
        return found

    async def _of_source(self, source: MetricsSource, overview: Overview | None) -> list[Metric]:
        try:
            return list(await source.metrics(overview))
        except StoreError as error:
            _log.warning("metrics: a system failed: %s", error)
        except Exception:  # noqa: BLE001  (it may be any bug)
            # What is wrong with one system must not hide the others.
            _log.exception("metrics: a system failed")
        return []


class _Found(Collector):
    """Hands out what was found."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self._found
