"""The dashboard's page of Kafka: how far the group is behind, and what became a dead letter."""

from __future__ import annotations

from collections.abc import Mapping

from headway.bridges.kafka.settings import KafkaSettings
from headway.bridges.kafka.watching import RUNBOOKS, GroupWatch
from headway.server.access.caller import Caller, Permission
from headway.web.page import Facts, Look, Page

MOST = 200
"""Partitions that are shown: those that are furthest behind."""
PATIENCE_S = 0.2
"""How long a look waits for the brokers; later looks show what they say."""


def kafka_page(watch: GroupWatch, settings: KafkaSettings) -> Page:
    """Return the page of the group of the settings."""
    wanted = settings.in_

    async def read(look: Look) -> Facts:
        now = (await look.sight.overview()).stats.now
        found = await watch.look_within(PATIENCE_S)
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

    return Page(
        path="kafka",
        title="Kafka",
        template="kafka.html",
        fragments=("kafka",),
        read=read,
        permission=Permission.OBSERVE,
        reach=Caller.whole,
        package=__name__.rpartition(".")[0],
    )
