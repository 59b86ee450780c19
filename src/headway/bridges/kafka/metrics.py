"""The metrics of a bridge, served by its own process."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric

from headway.bridges.kafka.publishing import PublishingCounts
from headway.core.errors import InvalidValue
from headway.server.metrics import Families, Samples

FAMILIES = Families()
"""All metrics, in the order of the reference."""
gauge, counter = FAMILIES.gauge, FAMILIES.counter
LAG = gauge("kafka_lag", "Messages in a partition that are not stored yet.", "topic", "partition")
PAUSED = gauge(
    "kafka_paused", "Whether the partition waits for the store: 1 or 0.", "topic", "partition"
)
CONSUMED = counter("kafka_consumed", "Messages read, including repetitions.", "topic")
CREATED = counter("kafka_jobs_created", "Jobs created from messages.", "topic")
DEAD_LETTERS = counter("kafka_dead_letters", "Messages that could not be read.", "topic", "code")
PUBLISHED = counter("kafka_published", "Messages that the broker has acknowledged.", "topic")
FAILED = counter("kafka_publish_failed", "Publish attempts that failed.", "topic")


class TallyCollector:
    """Collector for prometheus_client, read at each scrape."""

    def __init__(self, tally: PublishingCounts) -> None:
        self._tally = tally

    def collect(self) -> Iterable[Metric]:
        """Yield the current values."""
        tally = self._tally
        lag, paused = Samples(LAG), Samples(PAUSED)
        for (topic, partition), behind in [*tally.lag.items()]:
            lag.put(behind, topic, str(partition))
            paused.put((topic, partition) in tally.paused, topic, str(partition))
        yield lag.metric()
        yield paused.metric()
        plain = ((CONSUMED, tally.consumed), (CREATED, tally.enqueued))
        for family, counts in (*plain, (PUBLISHED, tally.published), (FAILED, tally.failed)):
            samples = Samples(family)
            for topic, n in [*counts.items()]:
                samples.put(n, topic)
            yield samples.metric()
        dead = Samples(DEAD_LETTERS)
        for (topic, code), n in [*tally.dead_lettered.items()]:
            dead.put(n, topic, code)
        yield dead.metric()


@contextmanager
def serving_metrics(tally: PublishingCounts, port: int) -> Generator[int]:
    """Serve a tally's metrics on a loopback port, and yield the port.

    Raises:
        InvalidValue: the port cannot be used.
    """
    registry = CollectorRegistry()
    registry.register(TallyCollector(tally))
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        message = f"metrics cannot be served at 127.0.0.1:{port}: {error.strerror}"
        raise InvalidValue(message, hint="pass another --metrics-port") from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
