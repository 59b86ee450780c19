"""How batches are stored, held back and dead-lettered; a sink that refuses replaces the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

import headway as hw
from headway.bridges.kafka.consuming import HELD_PAUSE_S, KafkaIn
from headway.bridges.kafka.consuming import incoming as from_kafka
from headway.bridges.kafka.message import EnqueueSink, Incoming, JobReader, Stored
from headway.bridges.kafka.publishing import Acknowledged, Publisher
from headway.bridges.kafka.settings import producer_config, read_kafka_settings
from headway.contract.views import JobsQuery
from headway.core.errors import (
    BacklogFull,
    InvalidValue,
    KeyConflict,
    OutcomeUnknown,
    ProviderRefused,
    StoreUnavailable,
)

SETTINGS = read_kafka_settings({"in": {"topics": ["orders"], "dead_letters": "orders.dead"}})
SOURCE = ("reason", "code", "topic", "partition", "offset")


def incoming(partition: int, offset: int, value: bytes = b"{}", key: bytes | None = None):
    return Incoming("orders", partition, offset, key, value, {"from": b"test"}, 0)


class Sink:
    """Stores a limited number of messages per partition, and refuses those with a bad value."""

    def __init__(self) -> None:
        self.room: dict[int, int] = {}
        self.error: Exception | None = None
        self.stored: list[tuple[int, int]] = []

    async def put(self, messages: Sequence[Incoming]) -> Stored:
        if self.error is not None:
            raise self.error
        for partition in {one.partition for one in messages}:
            wanted = sum(one.partition == partition for one in messages)
            if wanted > self.room.get(partition, 1_000):
                raise BacklogFull("full")
        put = Stored()
        for index, one in enumerate(messages):
            if one.value == b"bad":
                put.unreadable[index] = InvalidValue("it is bad")
                continue
            if one.partition in self.room:
                self.room[one.partition] -= 1
            self.stored.append((one.partition, one.offset))
        put.created = [index for index in range(len(messages)) if index not in put.unreadable]
        return put


class Letters(Publisher):
    """Keeps what is published; raises the planned errors first."""

    def __init__(self) -> None:
        super().__init__({})
        self.sent: list[tuple[str, bytes | None, bytes | None, dict[str, bytes]]] = []
        self.errors: list[Exception] = []

    async def publish(self, topic, value, *, key=None, headers=None) -> Acknowledged:
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append((topic, key, value, dict(headers)))
        return Acknowledged(0, len(self.sent))


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def bridge(sink: Sink, letters: Letters) -> KafkaIn:
    return KafkaIn(SETTINGS, sink, letters)


async def test_batch_is_stored_in_one_step_before_its_offsets(bridge: KafkaIn, sink: Sink) -> None:
    await bridge._store([incoming(0, 4), incoming(1, 9), incoming(0, 5)])
    assert sink.stored == [(0, 4), (1, 9), (0, 5)]
    assert bridge._stored == {("orders", 0): 6, ("orders", 1): 10}


@pytest.mark.parametrize("error", [StoreUnavailable("away"), OutcomeUnknown("no reply")])
async def test_nothing_is_committed_while_the_store_is_unreachable(
    bridge: KafkaIn, sink: Sink, error: Exception
) -> None:
    sink.error = error
    batch = [incoming(0, 4), incoming(1, 9), incoming(0, 5)]
    await bridge._store(batch)
    assert bridge._stored == {}
    assert bridge._held == {("orders", 0): [batch[0], batch[2]], ("orders", 1): [batch[1]]}
    sink.error = None
    for place, held in [*bridge._held.items()]:
        await bridge._store_in_order(place, held)
    assert bridge._held == {}
    assert bridge._stored == {("orders", 0): 6, ("orders", 1): 10}


async def test_full_lane_accepts_what_fits_and_pauses_only_one_partition(
    bridge: KafkaIn, sink: Sink
) -> None:
    sink.room[0] = 5
    await bridge._store([*(incoming(0, n) for n in range(12)), incoming(1, 3)])
    assert [n for partition, n in sink.stored if partition == 0] == [0, 1, 2, 3, 4]
    assert bridge._stored == {("orders", 0): 5, ("orders", 1): 4}
    assert [one.offset for one in bridge._held["orders", 0]] == [*range(5, 12)]
    assert ("orders", 1) not in bridge._held


async def test_only_what_is_not_stored_is_held_if_the_store_is_lost_after_a_part(
    bridge: KafkaIn,
) -> None:
    class Lost(Sink):
        async def put(self, messages: Sequence[Incoming]) -> Stored:
            put = await super().put(messages)
            self.error = StoreUnavailable("away")
            return put

    lost = Lost()
    lost.room[0] = 3
    bridge._sink = lost
    await bridge._store([incoming(0, n) for n in range(4)])
    assert lost.stored == [(0, 0), (0, 1)]
    assert bridge._stored == {("orders", 0): 2}
    assert [one.offset for one in bridge._held["orders", 0]] == [2, 3]


async def test_unreadable_message_is_a_dead_letter_before_it_is_committed(
    bridge: KafkaIn, sink: Sink, letters: Letters
) -> None:
    letters.errors = [ProviderRefused("away")]
    batch = [incoming(0, 4), incoming(0, 5, b"bad")]
    await bridge._store(batch)
    assert bridge._stored == {}
    assert bridge._held == {("orders", 0): batch}
    await bridge._store_in_order(("orders", 0), batch)
    ((topic, _, value, headers),) = letters.sent
    assert (topic, value) == ("orders.dead", b"bad")
    assert headers == {
        "from": b"test",
        "headway-reason": b"it is bad",
        "headway-code": b"invalid_value",
        "headway-topic": b"orders",
        "headway-partition": b"0",
        "headway-offset": b"5",
    }
    assert bridge._stored == {("orders", 0): 6}
    assert bridge.tally.dead_lettered == {("orders", "invalid_value"): 1}


async def test_too_large_dead_letter_has_only_its_reason_and_source(
    bridge: KafkaIn, letters: Letters
) -> None:
    letters.errors = [ProviderRefused("large", provider_code="MSG_SIZE_TOO_LARGE")]
    await bridge._store([incoming(0, 5, b"bad", key=b"k" * 900_000)])
    ((_, key, value, headers),) = letters.sent
    assert (key, value) == (None, None)
    assert headers.keys() == {f"headway-{name}" for name in SOURCE}
    assert bridge._stored == {("orders", 0): 6}


async def test_bridge_ends_before_an_unreadable_message_if_it_cannot_publish_any(
    sink: Sink,
) -> None:
    # Such a setting is valid for a consumer. The error must not be one that reading is retried for:
    # the message would be neither held nor published, and later ones would commit its offset.
    wanted = read_kafka_settings({"client": {"acks": 1, "log_level": 0}})
    bridge = KafkaIn(SETTINGS, sink, Publisher(producer_config(wanted)))
    with pytest.raises(InvalidValue, match=r"\[kafka.client\] is not valid: .*acks"):
        await bridge._store([incoming(0, 5, b"bad")])
    assert bridge._stored == {}


async def test_dead_letters_that_were_acknowledged_are_not_sent_again_for_another(
    bridge: KafkaIn, letters: Letters
) -> None:
    letters.errors = [ProviderRefused("no such topic"), ProviderRefused("no such topic")]
    bad = [incoming(0, n, b"bad") for n in range(4)]
    await bridge._store(bad)
    assert bridge._stored == {}
    await bridge._store_in_order(("orders", 0), bridge._held["orders", 0])
    offsets = [headers["headway-offset"] for *_, headers in letters.sent]
    assert offsets == [b"2", b"3", b"0", b"1"]
    assert bridge._stored == {("orders", 0): 4}
    assert bridge.tally.dead_lettered == {("orders", "invalid_value"): 4}


async def test_dead_letters_of_an_attempt_that_timed_out_are_not_sent_later(sink: Sink) -> None:
    class UntilQueued(hw.Timing):
        def limit(self, _: float | None) -> asyncio.Timeout:
            self.last = asyncio.timeout(None)
            return self.last

    class Unreachable(Publisher):
        async def publish(self, *args: object, **named: object) -> Acknowledged:
            # Runs once the message is in the producer's queue.
            asyncio.get_running_loop().call_soon(timing.last.reschedule, 0)
            return await super().publish(*args, **named)

    timing = UntilQueued()
    publisher = Unreachable({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    bridge = KafkaIn(SETTINGS, sink, publisher, timing=timing)
    try:
        await bridge._store([incoming(0, 5, b"bad")])
        assert list(bridge._held) == [("orders", 0)]
        assert publisher._producer is None or len(publisher._producer) == 0
    finally:
        publisher.close()


async def test_buffer_of_a_revoked_partition_is_dropped(bridge: KafkaIn, sink: Sink) -> None:
    class Gone:
        topic, partition = "orders", 0

    committed: list[tuple[int, int]] = []

    class Consumer:
        def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
            assert not asynchronous
            committed.extend((one.partition, one.offset) for one in offsets)

    await bridge._store([incoming(0, 3), incoming(1, 8)])
    sink.error = StoreUnavailable("away")
    await bridge._store([incoming(0, 4), incoming(1, 9)])
    bridge._on_revoke(Consumer(), [Gone()])
    assert sorted(committed) == [(0, 4), (1, 9)]
    assert list(bridge._held) == [("orders", 1)]


class Batches:
    """A consumer of two partitions; each of its calls returns the next of these batches."""

    def __init__(self, *batches: Sequence[tuple[int, int]]) -> None:
        self.committed: list[dict[int, int]] = []
        self._batches = iter(batches)
        self.on_second_read = lambda: None

    def consume(self, count: int, _: float) -> list[Message]:
        if count > 1:
            self.on_second_read()
        return [
            Message(topic="orders", partition=partition, offset=offset, value=b"{}")
            for partition, offset in next(self._batches, ())
        ]

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        self.committed.append({one.partition: one.offset for one in offsets})

    def pause(self, _: object) -> None: ...

    def resume(self, _: object) -> None: ...

    def assignment(self) -> list[TopicPartition]:
        return []

    def position(self, _: object) -> list[TopicPartition]:
        return []


class ByHand(hw.Timing):
    """A clock that a test advances."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


async def test_held_messages_are_tried_again_while_other_partitions_are_busy(
    sink: Sink, letters: Letters
) -> None:
    clock = ByHand()
    bridge = KafkaIn(SETTINGS, sink, letters, timing=clock)
    consumer = cast("Consumer", Batches([(0, 4)], [], *([(1, n)] for n in range(8))))
    sink.room[0] = 0
    await bridge._round(consumer)
    assert list(bridge._held) == [("orders", 0)]
    sink.room[0] = 1
    await bridge._round(consumer)
    assert (0, 4) not in sink.stored
    clock.seconds += HELD_PAUSE_S
    await bridge._round(consumer)
    assert (0, 4) in sink.stored
    assert bridge._held == {}


async def test_message_read_just_before_its_partition_was_revoked_is_left_to_the_next_owner(
    bridge: KafkaIn, sink: Sink
) -> None:
    reads = Batches([(0, 4)], [(1, 7)])
    consumer = cast("Consumer", reads)
    reads.on_second_read = lambda: bridge._on_revoke(consumer, [TopicPartition("orders", 0)])
    await bridge._round(consumer)
    assert sink.stored == [(1, 7)]
    assert reads.committed == [{1: 8}]


class Partition:
    """A consumer that was assigned one partition and has read nothing yet."""

    def __init__(self, code: int | None = None, low: int = 0, high: int = 0) -> None:
        self._code, self._ends = code, (low, high)

    def commit(self, **_: object) -> None:
        if self._code is not None:
            raise KafkaException(KafkaError(self._code))

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", 0)]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return partitions

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return self._ends

    def pause(self, partitions: list[TopicPartition]) -> None:
        pass


@pytest.mark.parametrize(
    ("code", "kept"),
    [(None, False), (KafkaError.ILLEGAL_GENERATION, False), (KafkaError.REQUEST_TIMED_OUT, True)],
)
def test_offsets_are_committed_again_unless_the_partition_was_reassigned(
    bridge: KafkaIn, code: int | None, kept: bool
) -> None:
    bridge._stored["orders", 0] = 6
    bridge._commit(cast("Consumer", Partition(code)))
    assert bridge._stored == ({("orders", 0): 6} if kept else {})


@pytest.mark.parametrize(("committed", "lag"), [(12, 3), (3, 5), (OFFSET_INVALID, 5)])
def test_lag_of_an_idle_partition_counts_its_messages(
    bridge: KafkaIn, committed: int, lag: int
) -> None:
    bridge._start_offsets["orders", 0] = committed
    bridge._update_partitions(cast("Consumer", Partition(low=10, high=15)))
    assert bridge.tally.lag == {("orders", 0): lag}
    # Messages that are read, but held back, are not stored either.
    bridge._held["orders", 0] = [incoming(0, offset) for offset in (10, 11)]
    bridge._update_partitions(cast("Consumer", Partition(low=10, high=15)))
    assert bridge.tally.lag == {("orders", 0): lag + 2}


async def test_message_whose_key_has_another_body_is_refused_alone() -> None:
    async with hw.App("memory://") as app:
        sink = EnqueueSink(app, JobReader(kind="ship"))
        first = [incoming(0, n, b'{"n":%d}' % n, b"k%d" % n) for n in range(40)]
        assert (await sink.put(first)).created == [*range(40)]
        again = [*first[:20], incoming(0, 50, b'{"n":"other"}', b"k7"), *first[20:]]
        again += [incoming(0, 51, b"{}", b"new"), incoming(0, 52, b"nonsense")]
        put = await sink.put(again)
        assert len(put.created) == 1
        assert {n: type(one) for n, one in put.unreadable.items()} == {
            20: KeyConflict,
            42: InvalidValue,
        }
        page = await app.store.read(JobsQuery(limit=100))
        assert len(page.rows) == 41


async def test_full_lane_does_not_count_against_the_message() -> None:
    app = hw.App("memory://")
    app.lane("small", max_backlog=3)
    async with app:
        sink = EnqueueSink(app, JobReader(kind="ship", lane="small"))
        with pytest.raises(BacklogFull):
            await sink.put([incoming(0, n) for n in range(4)])


async def test_message_with_a_header_that_the_client_cannot_decode_is_a_dead_letter(
    letters: Letters,
) -> None:
    class BadName(Message):
        def headers(self):
            # As of a message that librdkafka produced with the header b"\xff".
            raise SystemError("returned a result with an exception set")

    app = hw.App("memory://")
    async with app:
        bridge = KafkaIn(SETTINGS, EnqueueSink(app, JobReader(kind="ship")), letters)
        bad = BadName(topic="orders", partition=0, offset=5, value=b"{}")
        await bridge._store([incoming(0, 4), from_kafka(bad, 0), incoming(0, 6)])
        page = await app.store.read(JobsQuery())
    assert [job.key for job in page.rows] == ["orders-0-4-0", "orders-0-6-0"]
    ((*_, headers),) = letters.sent
    assert (headers["headway-code"], headers["headway-offset"]) == (b"invalid_value", b"5")
    assert bridge._stored == {("orders", 0): 7}


async def test_bridge_without_topics_refuses_to_run(sink: Sink, letters: Letters) -> None:
    with pytest.raises(InvalidValue, match="no topic"):
        await KafkaIn(read_kafka_settings({}), sink, letters).run()


def test_topic_of_dead_letters_that_is_read_itself_is_refused() -> None:
    written = {"topics": ["orders", "orders.dead"], "dead_letters": "orders.dead"}
    with pytest.raises(InvalidValue, match=r"^kafka\.in.*'orders\.dead' is read, too"):
        read_kafka_settings({"in": written})


async def test_setting_unknown_to_librdkafka_is_named(sink: Sink, letters: Letters) -> None:
    written = {"client": {"no.such": 1}, "in": {"topics": ["orders"]}}
    with pytest.raises(InvalidValue, match=r"no\.such"):
        await KafkaIn(read_kafka_settings(written), sink, letters).run()


async def test_stop_before_the_first_round_ends_at_once(sink: Sink, letters: Letters) -> None:
    bridge = KafkaIn(
        read_kafka_settings({"servers": "127.0.0.1:9", "in": {"topics": ["orders"]}}),
        sink,
        letters,
    )
    bridge.stop()
    await asyncio.wait_for(bridge.run(), 60)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("stats_cb", 3, "must be a Python object"),
        ("oauth_cb", "x", "must be a Python object"),
        ("logger", "x", "must be a Python object"),
        ("default.topic.config", "x", "must be a Python object"),
        ("delivery.report.only.error", 3, "should be true or false"),
    ],
)
def test_setting_that_the_client_does_not_take_from_a_file_is_named_with_its_value(
    name: str, value: object, allowed: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_kafka_settings({"client": {name: value}})
    assert refused.value.message.startswith(f"kafka.client: {name} is {value!r}")
    assert allowed in refused.value.message


async def test_created_jobs_of_a_batch_are_counted_by_topic(letters: Letters) -> None:
    async with hw.App("memory://") as app:
        sink = EnqueueSink(app, JobReader(kind="ship"))
        bridge = KafkaIn(SETTINGS, sink, letters)
        batch = [incoming(0, n, key=b"k%d" % n) for n in range(3)]
        batch += [incoming(0, n, key=b"n%d" % n)._replace(topic="news") for n in range(2)]
        batch += [incoming(0, 3, key=b"k0"), incoming(0, 4, b"nonsense")]
        await bridge._store(batch)
        assert bridge.tally.enqueued == {"orders": 3, "news": 2}
