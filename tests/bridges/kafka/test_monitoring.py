"""What servers and the doctor report about Kafka, without a broker that answers."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

import headway as hw
from headway.bridges.kafka import declare_kafka, monitoring
from headway.bridges.kafka.metrics import TallyCollector, serving_metrics
from headway.bridges.kafka.monitoring import GroupMonitor, GroupStatus, kafka_rules
from headway.bridges.kafka.publishing import PublishingCounts
from headway.bridges.kafka.settings import consumer_config, producer_config, read_kafka_settings
from headway.cli.doctor import Health
from headway.cli.doctor.other_services import check_kafka
from headway.cli.settings import Settings
from headway.core.errors import InvalidValue
from headway.server.alerts.rules import Rule

SETTINGS = {"in": {"topics": ["orders"], "lag_above": 10, "lag_for": "1m"}}


@pytest.fixture
def rules() -> dict[str, Rule[GroupStatus]]:
    return {one.name: one for one in kafka_rules(read_kafka_settings(SETTINGS))}


def test_unreachable_brokers_alert_after_two_minutes(rules: dict[str, Rule[GroupStatus]]) -> None:
    away = rules["kafka_away"]
    assert not away.check(GroupStatus(at=1_000, away="refused"))
    assert not away.check(GroupStatus(at=120_999, away="refused"))
    (found,) = away.check(GroupStatus(at=121_000, away="refused")) or ()
    assert found.text == "no broker has responded for 2m: refused"
    assert not away.check(GroupStatus(at=121_001))


def test_lagging_partition_alerts(rules: dict[str, Rule[GroupStatus]]) -> None:
    lag = rules["kafka_lag"]
    behind = {("orders", 3): 11, ("orders", 4): 10}
    assert not lag.check(GroupStatus(at=0, lag=behind))
    (found,) = lag.check(GroupStatus(at=60_000, lag=behind)) or ()
    assert found.subject == "orders-3"
    assert "11 messages behind in partition 3 of orders" in found.text
    assert not lag.check(GroupStatus(at=60_001, lag={("orders", 3): 10}))
    assert not lag.check(GroupStatus(at=120_000, lag=behind))


def test_new_dead_letters_alert_but_not_those_before_the_start(
    rules: dict[str, Rule[GroupStatus]],
) -> None:
    dead = rules["kafka_dead_letters"]
    assert not dead.check(GroupStatus(at=0, dead_letters=50))
    (found,) = dead.check(GroupStatus(at=1_000, dead_letters=52)) or ()
    assert found.text.startswith("2 messages became dead letters in headway.dead-letters")


@pytest.mark.parametrize(("moves_s", "away"), [(4.9, ""), (5.1, "Broker: Not coordinator")])
async def test_brokers_are_asked_again_while_the_coordinator_moves(
    monkeypatch: pytest.MonkeyPatch, moves_s: float, away: str
) -> None:
    class Pauses(hw.Timing):
        at = 7.0

        def monotonic(self) -> float:
            return self.at

        async def pause(self, seconds: float) -> None:
            self.at += seconds

    timing = Pauses()

    def moving(self: GroupMonitor, now: int) -> GroupStatus:
        if timing.at < 7.0 + moves_s:
            raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
        return GroupStatus(at=now, lag={("orders", 0): 3})

    monkeypatch.setattr(GroupMonitor, "_query", moving)
    seen = await GroupMonitor(read_kafka_settings(SETTINGS), timing).status()
    assert (seen.at, seen.away, bool(seen.lag)) == (7_000, away, not away)


async def test_brokers_without_a_reply_are_reported_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(monitoring, "LIMIT", 0.2)
    settings = {"servers": "127.0.0.1:9", **SETTINGS}
    watch = GroupMonitor(read_kafka_settings(settings))
    metrics = {one.name: one for one in await watch.metrics(None)}
    assert metrics["headway_kafka_up"].samples[0].value == 0
    assert not metrics["headway_kafka_group_lag"].samples
    (found,) = await check_kafka(Settings(kafka=settings))
    assert found.health is Health.PROBLEM
    assert "no broker reachable at 127.0.0.1:9" in found.found
    assert await check_kafka(Settings()) == []


def test_port_of_metrics_that_is_in_use_is_named() -> None:
    with (
        serving_metrics(PublishingCounts(), 0) as port,
        pytest.raises(InvalidValue, match=f"127.0.0.1:{port}: Address already in use"),
        serving_metrics(PublishingCounts(), port),
    ):
        pass


def test_bridge_counters_are_reported_by_topic() -> None:
    tally = PublishingCounts()
    tally.consumed["a"] = 5
    tally.enqueued["a"] = 4
    tally.dead_lettered["a", "invalid_value"] = 1
    tally.published["b"] = 7
    tally.failed["b"] = 2
    tally.lag.update({("a", 0): 3, ("a", 1): 6})
    tally.paused.add(("a", 1))
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in TallyCollector(tally).collect()
        for sample in metric.samples
    }
    assert found == {
        ("headway_kafka_lag", "a", "0"): 3,
        ("headway_kafka_lag", "a", "1"): 6,
        ("headway_kafka_paused", "a", "0"): 0,
        ("headway_kafka_paused", "a", "1"): 1,
        ("headway_kafka_consumed_total", "a"): 5,
        ("headway_kafka_jobs_created_total", "a"): 4,
        ("headway_kafka_published_total", "b"): 7,
        ("headway_kafka_publish_failed_total", "b"): 2,
        ("headway_kafka_dead_letters_total", "a", "invalid_value"): 1,
    }


def test_safety_settings_cannot_be_overridden() -> None:
    client = {"enable.idempotence": False, "enable.auto.commit": True, "message.timeout.ms": 5}
    settings = read_kafka_settings({"client": client})
    assert consumer_config(settings)["enable.auto.commit"] is False
    assert producer_config(settings)["enable.idempotence"] is True
    assert producer_config(settings)["message.timeout.ms"] == 0


def test_unknown_setting_is_named_and_a_password_is_not() -> None:
    with pytest.raises(InvalidValue, match=r"kafka\.in\.topic: there is no such setting"):
        read_kafka_settings({"in": {"topic": "x"}})
    with pytest.raises(InvalidValue, match=r"kafka\.client") as raised:
        read_kafka_settings({"client": {"sasl.password": ["hunter2"]}})
    assert "hunter2" not in str(raised.value)


def test_publishing_kinds_wait_in_the_configured_lane() -> None:
    app = hw.App("memory://")
    settings = read_kafka_settings({"out": {"lane": "later"}})
    kinds = declare_kafka(app, settings=settings)
    assert (kinds.publish.lane, kinds.publish_in_order.lane) == ("later", "later")
    job = kinds.publish_in_order.make(topic="t", message_key="ada", value=[1])
    assert [gate.name for gate in job.gates] == ["kafka:t:ada"]
    assert kinds.publish.make(topic="t").gates == ()
