"""The lag of a consumer group, queried from the brokers: metrics, alerts and a dashboard page.

It works without a running bridge, which is when it is needed most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from prometheus_client.core import Metric

from headway.bridges.kafka.settings import KafkaSettings, client_config
from headway.core.duration import format_duration
from headway.runtime.timing import REAL, Timing
from headway.server.alerts.rule_set import Facts, RuleSet
from headway.server.alerts.rules import FindingTexts, Grows, Lasting, Lasts, Rule, Severity
from headway.server.caller import Caller, Permission
from headway.server.metrics import Families, Samples
from headway.server.overview import Overview
from headway.server.service import Service
from headway.web.page import DashboardPage, PageView, TemplateContext

LIMIT = 5.0
"""Timeout in seconds of one query to the brokers."""
RETRY_S = 0.25
"""Seconds before a query is retried while the group's coordinator moves."""
MOVING = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors that healthy brokers return shortly after a start or a change of leaders."""
EACH_S = 10.0
"""Seconds for which a reply is cached."""
AWAY_FOR_MS = 120_000
DEAD_WITHIN_MS = 900_000
RUNBOOKS = "docs/how-to/kafka-runbooks.md"

FAMILIES = Families()
"""All metrics, in the order of the reference."""
gauge = FAMILIES.gauge
GROUP_UP = gauge("kafka_up", "Whether the brokers respond to the server: 1 or 0.")
GROUP_LAG = gauge(
    "kafka_group_lag", "Messages that the group has not committed yet.", "topic", "partition"
)
DEAD = gauge("kafka_dead_letters_end", "Messages ever published to the topic of dead letters.")


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupStatus:
    """The state of the group according to the brokers.

    Attributes:
        at: when it was queried, in ms of a monotonic clock.
        lag: messages behind, by topic and partition; empty if the brokers do not respond.
        dead_letters: sum of the end offsets of the dead-letter topic.
        missing: configured topics that do not exist.
        away: why the brokers do not respond; empty if they do.
    """

    at: int
    lag: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    dead_letters: int = 0
    missing: Sequence[str] = ()
    away: str = ""


class GroupMonitor:
    """A watch that queries the brokers about the configured group without joining it."""

    def __init__(self, settings: KafkaSettings, timing: Timing = REAL) -> None:
        self._settings = settings
        self._timing = timing
        self._refreshing: asyncio.Task[GroupStatus] | None = None
        self._seen: GroupStatus | None = None

    async def status(self) -> GroupStatus:
        """Return the group's status, cached for `EACH_S`."""
        if self._seen is not None and self._age_ms(self._seen) <= EACH_S * 1000:
            return self._seen
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        return await asyncio.shield(self._refreshing)

    async def status_within(self, limit_s: float) -> tuple[GroupStatus, int] | None:
        """Return the last status and its age in ms; None if there is none yet.

        Args:
            limit_s: how long to wait for a new status; a slower query continues in the background.
        """
        with suppress(TimeoutError):
            async with self._timing.limit(limit_s):
                await self.status()
        return None if self._seen is None else (self._seen, self._age_ms(self._seen))

    def _age_ms(self, seen: GroupStatus) -> int:
        return int(self._timing.monotonic() * 1000) - seen.at

    async def _refresh(self) -> GroupStatus:
        began = self._timing.monotonic()
        now = int(began * 1000)
        while True:
            try:
                self._seen = await asyncio.to_thread(self._query, now)
            except KafkaException as error:
                moving = error.args[0].code() in MOVING
                if moving and self._timing.monotonic() - began < LIMIT:
                    await self._timing.pause(RETRY_S)
                    continue
                self._seen = GroupStatus(at=now, away=error.args[0].str())
            return self._seen

    def _query(self, now: int) -> GroupStatus:
        quiet = logging.getLogger("headway.kafka.watch")
        config = {**client_config(self._settings), "group.id": self._settings.in_.group}
        consumer = Consumer({**config, "logger": quiet, "error_cb": lambda _: None})  # pyright: ignore[reportUnknownLambdaType]
        try:
            return self._status_of(consumer, now)
        finally:
            consumer.close()

    def _status_of(self, consumer: Consumer, now: int) -> GroupStatus:
        wanted = self._settings.in_
        found = consumer.list_topics(timeout=LIMIT).topics
        missing = [name for name in wanted.topics if name not in found]
        places = [
            TopicPartition(name, partition)
            for name in wanted.topics
            if name in found
            for partition in found[name].partitions
        ]
        lag: dict[tuple[str, int], int] = {}
        for one in consumer.committed(places, timeout=LIMIT) if places else ():
            low, high = consumer.get_watermark_offsets(one, timeout=LIMIT) or (0, 0)
            lag[one.topic, one.partition] = max(0, high - max(one.offset, low))
        dead = 0
        letters = wanted.dead_letters
        for partition in found[letters].partitions if letters in found else ():
            place = TopicPartition(letters, partition)
            dead += (consumer.get_watermark_offsets(place, timeout=LIMIT) or (0, 0))[1]
        return GroupStatus(at=now, lag=lag, dead_letters=dead, missing=missing)

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """See `MetricsSource.metrics`."""
        del overview
        seen = await self.status()
        up, lag, dead = Samples(GROUP_UP), Samples(GROUP_LAG), Samples(DEAD)
        up.put(not seen.away)
        for (topic, partition), behind in seen.lag.items():
            lag.put(behind, topic, str(partition))
        if not seen.away:
            dead.put(seen.dead_letters)
        return [up.metric(), lag.metric(), dead.metric()]


def kafka_rules(settings: KafkaSettings) -> tuple[Rule[GroupStatus], ...]:
    """Return the alert rules, most severe first."""
    wanted = settings.in_
    return (
        Lasts("kafka_away", Severity.P1, AWAY_FOR_MS, _away),
        Lasts("kafka_lag", Severity.P2, wanted.lag_for, lambda seen: _behind(settings, seen)),
        Grows(
            "kafka_dead_letters",
            Severity.P2,
            DEAD_WITHIN_MS,
            lambda seen: {} if seen.away else {wanted.dead_letters: seen.dead_letters},
            _dead,
        ),
    )


def _away(seen: GroupStatus) -> Lasting:
    if not seen.away:
        return {}
    return {"kafka": lambda ms: f"no broker has responded for {format_duration(ms)}: {seen.away}"}


def _behind(settings: KafkaSettings, seen: GroupStatus) -> Lasting:
    wanted = settings.in_
    return {
        f"{topic}-{partition}": lambda ms, topic=topic, partition=partition, lag=lag: (
            f"the group {wanted.group} is {lag} messages behind in partition {partition} of "
            f"{topic}, and more than {wanted.lag_above} for {format_duration(ms)}"
        )
        for (topic, partition), lag in seen.lag.items()
        if lag > wanted.lag_above
    }


def _dead(grown: Mapping[str, int]) -> FindingTexts:
    within = format_duration(DEAD_WITHIN_MS)
    return {
        topic: f"{n} messages became dead letters in {topic} within {within}"
        for topic, n in grown.items()
        if n > 0
    }


def start_kafka_monitoring(service: Service, settings: KafkaSettings) -> GroupMonitor:
    """Add the alert rules and metrics to a server before it starts; return their shared watch."""
    monitor = GroupMonitor(settings, service.timing)

    async def see(facts: Facts) -> GroupStatus | None:
        return replace(await monitor.status(), at=facts.at)

    service.alerts.add(RuleSet(rules=lambda: kafka_rules(settings), read=see, runbooks=RUNBOOKS))
    service.scrapes.add(monitor)
    return monitor


MOST = 200
"""Maximum number of partitions shown: those furthest behind."""
PATIENCE_S = 0.2
"""Seconds a page waits for the brokers; a later refresh shows a late reply."""


def kafka_page(monitor: GroupMonitor, settings: KafkaSettings) -> DashboardPage:
    """Return the dashboard page of the configured group."""
    wanted = settings.in_

    async def read(view: PageView) -> TemplateContext:
        now = (await view.reads.overview()).stats.now
        found = await monitor.status_within(PATIENCE_S)
        status, age_ms = found or (None, 0)
        lag: Mapping[tuple[str, int], int] = {} if status is None else status.lag
        return {
            "now": now,
            "status": status,
            "asked_at": now - age_ms,
            "servers": settings.servers,
            "wanted": wanted,
            "rows": sorted(lag.items(), key=lambda one: (-one[1], one[0]))[:MOST],
            "behind": sum(lag.values()),
            "late": sum(one > wanted.lag_above for one in lag.values()),
            "runbooks": RUNBOOKS,
        }

    return DashboardPage(
        path="kafka",
        title="Kafka",
        template="kafka.html",
        fragments=("kafka",),
        read=read,
        permission=Permission.OBSERVE,
        reach=Caller.whole,
        package=__name__.rpartition(".")[0],
    )
