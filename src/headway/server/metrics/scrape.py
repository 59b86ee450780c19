"""A scrape: what one reading of the metrics finds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from importlib import metadata

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from headway.contract.store import Store
from headway.core.errors import StoreError
from headway.runtime.latency import lane_latencies
from headway.runtime.timing import Timing
from headway.server.metrics import families
from headway.server.metrics.request_metrics import RequestMetrics
from headway.server.metrics.samples import of_overview, one
from headway.server.metrics.source import Source
from headway.server.overview import Overview, look_over

PATIENCE_S = 5.0
"""How long a scrape waits for the store; Prometheus gives up after ten seconds."""
SOURCES_S = 3.0
"""How long it waits for all sources of the systems besides."""
MOST_TARGETS = 50
"""Lanes with a target whose latency is looked at, the first by name."""

_log = logging.getLogger("headway.server")


class Scrapes:
    """Reads the metrics of a server and its store, one scrape at a time.

    Attributes:
        requests: counted at this server.
    """

    def __init__(self, store: Store, timing: Timing, requests: RequestMetrics) -> None:
        """Reads nothing yet.

        Args:
            store: whose metrics.
            timing: for the limit.
            requests: counted here.
        """
        self._store = store
        self._timing = timing
        self.requests = requests
        self._sources: list[Source] = []
        self._alone = asyncio.Lock()

    def add(self, source: Source) -> None:
        """Adds the metrics of a system; its `start` is the moment to do it."""
        self._sources.append(source)

    async def scrape(
        self, accept: str, *, long_polls: int, event_streams: int, leads: bool
    ) -> tuple[bytes, str]:
        """What Prometheus reads; also when the store does not answer.

        Args:
            accept: the formats that it understands.
            long_polls: that wait now.
            event_streams: that are open now.
            leads: whether this server is the one that alerts.

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
                overview = await look_over(self._store)
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

    async def _of_source(self, source: Source, overview: Overview | None) -> list[Metric]:
        try:
            return list(await source.metrics(overview))
        except StoreError as error:
            _log.warning("metrics: a system cannot tell its own: %s", error)
        except Exception:  # noqa: BLE001  (it may be any bug)
            # What is wrong with one system must not hide the others.
            _log.exception("metrics: a system cannot tell its own")
        return []


class _Found(Collector):
    """Hands out what was found."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        yield from self._found
