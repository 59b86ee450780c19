"""Kafka in and out with a real broker: kills, rebalances, a full lane, order by key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

import headway as hw
from headway.bridges.kafka.consuming import KafkaIn
from headway.bridges.kafka.message import EnqueueSink, JobReader
from headway.bridges.kafka.monitoring import GroupMonitor
from headway.bridges.kafka.publishing import Publisher, declare_kafka
from headway.bridges.kafka.settings import producer_config, read_kafka_settings
from headway.contract.views import JobsQuery
from tests.bridges.kafka.rig import Topics, bridge, count, end, kill, sqlite, until
from tests.servers.brokers.kafka import GivenKafka, KafkaServer
from tests.servers.fixtures import made

pytestmark = pytest.mark.slow


@pytest.fixture
def topics(kafka_server: GivenKafka) -> Topics:
    return Topics(kafka_server.address)


@pytest.fixture
def own_broker() -> Iterator[KafkaServer]:
    """A broker that the test may kill."""
    with made(KafkaServer) as server:
        yield server


def numbers(n: int) -> list[bytes]:
    return [b'{"n":%d}' % one for one in range(n)]


def reading(topics: Topics, topic: str) -> list[str]:
    place = ["--servers", topics.address, "--topic", topic, "--group", topic]
    return ["kafka-in", *place, "--kind", "noop", "--lane", "in", "--dead-letters", f"{topic}.dead"]


async def keys(app: hw.App, lane: str) -> list[str | None]:
    found, cursor = [], None
    while True:
        page = await app.store.read(JobsQuery(lane=lane, limit=1_000, cursor=cursor))
        found += [row.key for row in page.rows]
        cursor = page.cursor
        if cursor is None:
            return found


async def test_every_message_is_one_job_though_the_bridge_is_killed(
    topics: Topics, tmp_path: Path
) -> None:
    topic, n = topics.new(partitions=4), 4_000
    topics.send(topic, numbers(n))
    line, store = reading(topics, topic), sqlite(tmp_path)
    async with hw.App(store) as app:
        for reached in (1, n // 2):
            with bridge(*line, store=store) as process:

                async def some(reached: int = reached) -> bool:
                    return await count(app, "in") >= reached

                await until(some)
                kill(process)
        with bridge(*line, store=store) as process:

            async def committed() -> bool:
                found = await asyncio.to_thread(topics.committed, topic, topic, 4)
                return found == n

            await until(committed)
            assert end(process) == 0
        assert sorted(await keys(app, "in")) == sorted(f"k{one}" for one in range(n))


async def test_nothing_is_lost_or_duplicated_through_a_killed_broker(
    own_broker: KafkaServer, tmp_path: Path
) -> None:
    topics = Topics(own_broker.address)
    near, far, n = topics.new(partitions=2), topics.new(), 3_000
    store = sqlite(tmp_path)
    values = [
        json.dumps({"topic": far, "value": one, "message_key": "all"}).encode() for one in range(n)
    ]
    line = ["kafka-in", "--servers", topics.address, "--topic", near, "--group", "g"]
    line += ["--kind", "kafka.publish", "--lane", "kafka"]
    sending = Thread(target=topics.send, args=(near, values))
    async with hw.App(store) as app:
        await app.declare()
        sending.start()
        with (
            bridge(*line, store=store) as incoming,
            bridge("kafka-out", "--servers", topics.address, store=store) as outgoing,
        ):
            for part in (n // 10, n // 2):

                async def moved(part: int = part) -> bool:
                    return await count(app, "kafka", "succeeded") >= part

                await until(moved)
                await asyncio.to_thread(own_broker.kill)
                await asyncio.to_thread(own_broker.start)

            async def all_out() -> bool:
                return await count(app, "kafka", "succeeded") == n

            await until(all_out)
            await asyncio.to_thread(sending.join)
            assert end(incoming) == 0
            assert end(outgoing) == 0
        assert await count(app, "kafka") == n
    seen = topics.read(far)
    assert {int(one.value or b"-1") for one in seen} == set(range(n))
    # An idempotent producer repeats no message; only a repeated run may.
    repeated = len(seen) - len({one.headers["headway-job"] for one in seen})
    assert repeated == sum(one.headers["headway-attempt"] != b"1" for one in seen)


async def test_killed_publisher_repeats_only_what_was_in_flight(
    topics: Topics, tmp_path: Path
) -> None:
    topic, n, store = topics.new(), 2_000, sqlite(tmp_path)
    app = hw.App(store)
    kinds = declare_kafka(app, topics.address)
    async with app:
        jobs = (kinds.publish.make(topic=topic, value=one) for one in range(n))
        await app.send_many_async(jobs)
        line = ("kafka-out", "--servers", topics.address, "--concurrency", "50")
        with bridge(*line, store=store) as process:

            async def some() -> bool:
                return await count(app, "kafka", "succeeded") >= n // 4

            await until(some)
            kill(process)
        with bridge(*line, store=store) as process:

            async def all_out() -> bool:
                return await count(app, "kafka", "succeeded") == n

            await until(all_out)
            assert end(process) == 0
    seen = topics.read(topic)
    assert {int(one.value or b"-1") for one in seen} == set(range(n))
    by_job: dict[bytes, set[bytes | None]] = {}
    for one in seen:
        by_job.setdefault(one.headers["headway-job"], set()).add(one.value)
    # A repeated message has the same job id as the first, so the consumer can drop it.
    assert len(by_job) == n
    assert all(len(values) == 1 for values in by_job.values())


async def test_order_by_key_holds_though_a_worker_is_killed(topics: Topics, tmp_path: Path) -> None:
    topic, store = topics.new(partitions=3), sqlite(tmp_path)
    app = hw.App(store)
    kinds = declare_kafka(app, topics.address)
    async with app:
        jobs = [
            kinds.publish_in_order.make(topic=topic, message_key=f"key{key}", value=n)
            for n in range(30)
            for key in range(20)
        ]
        await app.send_many_async(jobs)
        line = ("kafka-out", "--servers", topics.address)
        with bridge(*line, store=store) as one, bridge(*line, store=store) as other:

            async def some() -> bool:
                return await count(app, "kafka", "succeeded") >= 100

            await until(some)
            kill(one)

            async def all_out() -> bool:
                return await count(app, "kafka", "succeeded") == len(jobs)

            await until(all_out)
            assert end(other) == 0
    by_key: dict[str | None, list[int]] = {}
    for seen in topics.read(topic, 3):
        by_key.setdefault(seen.key, []).append(int(seen.value or b"-1"))
    assert len(by_key) == 20
    for values in by_key.values():
        assert list(dict.fromkeys(values)) == [*range(30)]


async def test_second_bridge_takes_half_of_the_partitions_without_duplicates(
    topics: Topics, tmp_path: Path
) -> None:
    topic, n = topics.new(partitions=4), 2_000
    settings = read_kafka_settings(
        {"servers": topics.address, "in": {"topics": [topic], "group": topic}}
    )
    async with hw.App(sqlite(tmp_path)) as app:
        publisher = Publisher(producer_config(settings))
        bridges = [
            KafkaIn(settings, EnqueueSink(app, JobReader(kind="noop", lane="in")), publisher)
            for _ in range(2)
        ]
        topics.send(topic, numbers(n))
        tasks = [asyncio.create_task(bridges[0].run())]

        async def begun() -> bool:
            return await count(app, "in") > 0

        await until(begun)
        tasks.append(asyncio.create_task(bridges[1].run()))

        async def shared() -> bool:
            return [len(one.tally.lag) for one in bridges] == [2, 2]

        await until(shared)
        topics.send(topic, numbers(n), key="more")

        async def committed() -> bool:
            return await asyncio.to_thread(topics.committed, topic, topic, 4) == 2 * n

        await until(committed)
        bridges[0].stop()
        await tasks[0]

        async def alone() -> bool:
            return len(bridges[1].tally.lag) == 4

        await until(alone)
        bridges[1].stop()
        await tasks[1]
        assert bridges[1].tally.consumed.total() > 0
        found = await keys(app, "in")
        assert len(found) == len(set(found)) == 2 * n


async def test_full_lane_pauses_its_partition_until_there_is_room(
    topics: Topics, tmp_path: Path
) -> None:
    topic, n = topics.new(), 300
    settings = read_kafka_settings(
        {"servers": topics.address, "in": {"topics": [topic], "group": topic}}
    )
    app = hw.App(sqlite(tmp_path))
    app.lane("in", max_backlog=100)
    kind = app.job(name="quick", lane="in")(quick)
    async with app:
        sink = EnqueueSink(app, JobReader(kind=kind.name, lane="in", app=app))
        reader = KafkaIn(settings, sink, Publisher(producer_config(settings)))
        topics.send(topic, numbers(n))
        task = asyncio.create_task(reader.run())

        async def paused() -> bool:
            return reader.tally.paused == {(topic, 0)} and reader.tally.lag[topic, 0] == 200

        await until(paused)
        assert await count(app, "in") == 100
        worker = app.worker(lanes="in")
        working = asyncio.create_task(worker.run())

        async def done() -> bool:
            return await count(app, "in", "succeeded") == n

        await until(done)

        async def resumed() -> bool:
            return not reader.tally.paused and reader.tally.lag[topic, 0] == 0

        await until(resumed)
        reader.stop()
        worker.stop()
        await asyncio.gather(task, working)
    assert topics.committed(topic, topic) == n


async def quick(job: hw.Job, n: int) -> None: ...


async def test_unreadable_messages_are_dead_letters_with_their_reason(
    topics: Topics, tmp_path: Path
) -> None:
    topic, dead, store = topics.new(), topics.new(), sqlite(tmp_path)
    topics.send(topic, [b'{"n":1}', b"nonsense", b'{"n":2}'])
    line = reading(topics, topic)
    line[line.index("--dead-letters") + 1] = dead
    async with hw.App(store) as app:
        await app.declare()
        with bridge(*line, store=store) as process:

            async def committed() -> bool:
                return await asyncio.to_thread(topics.committed, topic, topic) == 3

            await until(committed)
            assert end(process) == 0
        assert sorted(await keys(app, "in")) == ["k0", "k2"]
    (letter,) = topics.read(dead)
    assert (letter.key, letter.value) == ("k1", b"nonsense")
    assert b"not a JSON object" in letter.headers.pop("headway-reason")
    assert letter.headers == {
        "headway-code": b"invalid_value",
        "headway-topic": topic.encode(),
        "headway-partition": b"0",
        "headway-offset": b"1",
    }


async def test_message_that_can_never_be_published_is_dead_at_once(
    topics: Topics, tmp_path: Path
) -> None:
    app = hw.App(sqlite(tmp_path))
    kinds = declare_kafka(app, topics.address)
    async with app:
        (large, text, coded, no) = await app.send_many_async(
            [
                kinds.publish.make(topic="x" * 300, value=1),
                kinds.publish.make(topic=topics.new(), value="a", encoding="text"),
                kinds.publish.make(topic=topics.new(), value="AAEC", encoding="base64"),
                kinds.publish.make(topic="any", value="?", encoding="base64"),
            ]
        )
        worker = app.worker()
        working = asyncio.create_task(worker.run())

        async def ended() -> bool:
            return await count(app, "kafka", "succeeded", "dead") == 4

        await until(ended)
        worker.stop()
        await working
        page = await app.store.read(JobsQuery(ids=(large.id, text.id, coded.id, no.id)))
        states = {row.id: str(row.state) for row in page.rows}
        kinds.publisher.close()
    assert [states[one.id] for one in (large, text, coded, no)] == [
        "dead",
        "succeeded",
        "succeeded",
        "dead",
    ]


async def test_server_shows_lag_and_dead_letters_without_a_bridge(
    topics: Topics, tmp_path: Path
) -> None:
    topic, dead = topics.new(partitions=2), topics.new()
    topics.send(topic, [b"nonsense", *numbers(9)])
    given = {"topics": [topic, "missing"], "group": topic, "dead_letters": dead}
    settings = read_kafka_settings({"servers": topics.address, "in": given})
    seen = await GroupMonitor(settings).status()
    assert (sum(seen.lag.values()), len(seen.lag), seen.dead_letters) == (10, 2, 0)
    assert (seen.missing, seen.away) == (["missing"], "")
    store = sqlite(tmp_path)
    line = reading(topics, topic)
    line[line.index("--dead-letters") + 1] = dead
    with bridge(*line, store=store) as process:

        async def committed() -> bool:
            return await asyncio.to_thread(topics.committed, topic, topic, 2) == 10

        await until(committed)
        assert end(process) == 0
    seen = await GroupMonitor(settings).status()
    assert (sum(seen.lag.values()), seen.dead_letters) == (0, 1)
