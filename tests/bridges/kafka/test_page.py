"""The Kafka page of the dashboard, without a broker that answers."""

from __future__ import annotations

import asyncio
import threading

from headway.bridges.kafka.monitoring import GroupMonitor, GroupStatus, kafka_page
from headway.bridges.kafka.settings import KafkaSettings, read_kafka_settings
from headway.contract.definitions import Role
from tests.web.rig import HOSTILE, dashboard, signed_in
from tests.web.test_web_pages import plain

PAGE = "/ui/kafka"


def settings() -> KafkaSettings:
    return read_kafka_settings({"in": {"topics": ["orders"], "lag_above": 10, "group": "g"}})


class Answers(GroupMonitor):
    """Returns a given status as the brokers' reply, once it is allowed to."""

    def __init__(self, **said: object) -> None:
        super().__init__(settings())
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._said = said

    def _query(self, now: int) -> GroupStatus:
        self.may_answer.wait()
        return GroupStatus(at=now, **self._said)


async def shown(watch: GroupMonitor, who: Role = Role.VIEWER) -> tuple[int, str]:
    async with (
        dashboard(pages=[kafka_page(watch, settings())]) as rig,
        signed_in(rig, who) as http,
    ):
        reply = await http.get(PAGE)
        return reply.status_code, plain(reply.text)


async def test_page_shows_the_most_lagging_partitions_first():
    lag = {("orders", 0): 3, ("orders", 1): 2_000, ("orders", 2): 10}
    status, text = await shown(Answers(lag=lag, dead_letters=7))
    assert status == 200
    assert "Bridges Kafka" in text
    assert "Behind2 013 messages1 partition is more than 10 behind" in text
    assert "Dead letters7ever published to headway.dead-letters" in text
    assert "orders12 000orders210orders03" in text


async def test_unreachable_brokers_and_missing_topics_come_first():
    _, text = await shown(Answers(away=f"refused {HOSTILE[0]}"))
    assert "No broker responds. refused <script>" in text
    assert "docs/how-to/kafka-runbooks.md, kafka_away" in text
    assert "Behind\N{EN DASH}" in text
    _, text = await shown(Answers(missing=["orders"]))
    assert "There is no topic orders. Create it" in text


async def test_page_does_not_wait_for_slow_brokers():
    watch = Answers(dead_letters=7)
    watch.may_answer.clear()
    try:
        async with (
            dashboard(pages=[kafka_page(watch, settings())]) as rig,
            signed_in(rig, Role.VIEWER) as http,
        ):
            assert "have not responded yet" in plain((await http.get(PAGE)).text)
            watch.may_answer.set()
            await watch.status()
            assert "Dead letters7" in plain((await http.get(PAGE)).text)
    finally:
        watch.may_answer.set()


async def test_concurrent_views_query_the_brokers_once():
    watch = Answers()
    first, second = await asyncio.gather(watch.status(), watch.status())
    assert first is second
    assert await watch.status() is first


async def test_page_is_visible_only_with_access_to_the_whole_store():
    assert (await shown(Answers(), Role.PRODUCER))[0] == 403
