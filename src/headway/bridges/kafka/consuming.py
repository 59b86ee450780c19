"""Kafka in: read batches of messages, store them, then commit their offsets.

All calls of the consumer run on one thread, and so do its rebalance callbacks. That thread is idle
while the loop stores a batch, so a batch cannot be revoked while it is being stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TypeVar, TypeVarTuple, Unpack, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headway.bridges.kafka.message import Incoming, Sink
from headway.bridges.kafka.publishing import Publisher, PublishingCounts
from headway.bridges.kafka.settings import KafkaSettings, consumer_config
from headway.core.errors import (
    BacklogFull,
    CallerError,
    InvalidValue,
    ProviderError,
    ProviderRefused,
    StoreError,
)
from headway.runtime.timing import REAL, Timing

FIRST_MESSAGE_S = 0.5
"""Seconds to wait for the first message of a batch; `stop` takes effect after at most this long."""
MORE_MESSAGES_S = 0.005
"""Seconds to wait for more messages after the first."""
HELD_PAUSE_S = 1.0
"""Seconds before messages that could not be stored are tried again."""
DEAD_LETTER_LIMIT_S = 15.0
"""Seconds to wait for the acknowledgement of dead letters before their partitions are paused."""

COMMITTED_LIMIT_S = 5.0
"""Timeout in seconds for reading committed offsets when partitions are assigned."""

REASON, CODE = "headway-reason", "headway-code"
TOPIC, PARTITION, OFFSET = "headway-topic", "headway-partition", "headway-offset"

_Place = tuple[str, int]
"""A topic and a partition."""

Args = TypeVarTuple("Args")
Result = TypeVar("Result")

_log = logging.getLogger("headway.kafka")


class KafkaIn:
    """A bridge that reads topics and stores the jobs of their messages, until stopped.

    An offset is committed once its message is stored, or the broker has acknowledged it as a dead
    letter. After a crash, messages are read again; the sink stores each only once.

    If messages of a partition cannot be stored now, the partition is paused and its messages are
    held; other partitions continue. If a partition is revoked, its held messages are dropped,
    because its next consumer reads them again.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        sink: Sink,
        publisher: Publisher,
        *,
        tally: PublishingCounts | None = None,
        timing: Timing = REAL,
    ) -> None:
        self.tally = tally or PublishingCounts()
        self._settings = settings
        self._sink = sink
        self._publisher = publisher
        self._timing = timing
        self._stop = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "headway-kafka-consumer")
        self._held: dict[_Place, list[Incoming]] = {}
        self._retry_at = 0.0
        self._stored: dict[_Place, int] = {}
        self._start_offsets: dict[_Place, int] = {}
        self._revoked: set[_Place] = set()
        self._dead_lettered: dict[_Place, set[int]] = {}
        """Offsets of held messages that are in the dead-letter topic already."""

    def stop(self) -> None:
        """Stop after the current batch. Call it on the event loop; any time is safe."""
        self._stop.set()

    async def run(self) -> None:
        """Read until stopped; errors of the consumer are logged and reading is retried.

        Raises:
            InvalidValue: no topics are configured, or a setting of the client is not valid.
        """
        topics = list(self._settings.in_.topics)
        if not topics:
            message = "no topics are configured"
            raise InvalidValue(message, hint="pass --topic, or set topics in [kafka.in]")
        try:
            consumer = Consumer({**consumer_config(self._settings), "error_cb": _on_error})
        except KafkaException as error:
            message = f"a setting of [kafka.client] is not valid: {error.args[0].str()}"
            raise InvalidValue(message) from None
        await self._call(self._subscribe, consumer, topics)
        _log.info("kafka started: topics=%s group=%s", topics, self._settings.in_.group)
        try:
            while not self._stop.is_set():
                try:
                    await self._round(consumer)
                except KafkaException as error:
                    _log.warning("kafka read failed: %s retry_in=%gs", error, HELD_PAUSE_S)
                    await self._timing.wait(self._stop, HELD_PAUSE_S)
        finally:
            await self._call(self._close, consumer)
            self._thread.shutdown(wait=False)
            _log.info("kafka stopped: consumed=%d", self.tally.consumed.total())

    async def _call(self, call: Callable[[Unpack[Args]], Result], *args: *Args) -> Result:
        """Run a call on the consumer's thread; cancelling the caller does not interrupt it."""
        return await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(self._thread, call, *args)
        )

    async def _round(self, consumer: Consumer) -> None:
        messages = await self._call(self._read, consumer)
        if messages:
            for topic, group in groupby(messages, lambda one: one.topic):
                self.tally.consumed[topic] += len(list(group))
            await self._store(messages)
        if self._held and self._timing.monotonic() >= self._retry_at:
            for place, held in [*self._held.items()]:
                await self._store_in_order(place, held)
        if self._stored:
            await self._call(self._commit, consumer)
        await self._call(self._update_partitions, consumer)

    # --------------------------------------------------------------------- storing, in the loop

    async def _store(self, messages: Sequence[Incoming]) -> None:
        """Store a batch in one step; if that fails, handle each of its partitions separately."""
        try:
            await self._make_durable(messages)
        except (BacklogFull, StoreError, ProviderError) as error:
            by_place: dict[_Place, list[Incoming]] = {}
            for one in messages:
                by_place.setdefault((one.topic, one.partition), []).append(one)
            for place, group in by_place.items():
                if isinstance(error, BacklogFull):
                    await self._store_in_order(place, group)
                else:
                    self._hold(place, group, error)

    async def _store_in_order(self, place: _Place, messages: Sequence[Incoming]) -> None:
        """Store as many messages of a partition as the backlog has room for, and hold the rest."""
        done, size = 0, len(messages)
        while done < len(messages):
            try:
                await self._make_durable(messages[done : done + size])
            except BacklogFull as error:
                if size > 1:
                    size //= 2
                    continue
                self._hold(place, messages[done:], error)
                return
            except (StoreError, ProviderError) as error:
                self._hold(place, messages[done:], error)
                return
            done += size
        if self._held.pop(place, None) is not None:
            _log.info("kafka resumed: topic=%s partition=%d", *place)

    def _hold(self, place: _Place, messages: Sequence[Incoming], error: Exception) -> None:
        if place not in self._held:
            _log.warning("kafka paused: topic=%s partition=%d reason=%s", *place, error)
        self._held[place] = list(messages)
        self._retry_at = self._timing.monotonic() + HELD_PAUSE_S

    async def _make_durable(self, messages: Sequence[Incoming]) -> None:
        """Store messages; on return, each is durable in the store or in the dead-letter topic.

        Raises:
            BacklogFull: a lane has reached its maximum backlog.
            StoreError: the store is unavailable or failed.
            ProviderRefused: a dead letter cannot be published now.
        """
        put = await self._sink.put(messages)
        if put.unreadable:
            dead = (
                self._publish_dead_letter(messages[index], why)
                for index, why in put.unreadable.items()
            )
            try:
                async with self._timing.limit(DEAD_LETTER_LIMIT_S):
                    ends = await asyncio.gather(*dead, return_exceptions=True)
                for end in filter(None, ends):
                    raise end
            except TimeoutError:
                # A retry publishes the others again: those of this attempt must not be sent, too.
                self._publisher.close()
                message = "the dead letters were not acknowledged in time"
                raise ProviderRefused(message) from None
        self.tally.enqueued.update(messages[index].topic for index in put.created)
        for one in messages:
            self._stored[one.topic, one.partition] = one.offset + 1
            self._dead_lettered.get((one.topic, one.partition), set()).discard(one.offset)

    async def _publish_dead_letter(self, message: Incoming, why: CallerError) -> None:
        """Publish an unreadable message to the dead-letter topic, unless it is there already.

        Raises:
            ProviderRefused: it cannot be published now.
        """
        published = self._dead_lettered.setdefault((message.topic, message.partition), set())
        if message.offset in published:
            return
        place = f"topic={message.topic} partition={message.partition} offset={message.offset}"
        _log.warning("kafka dead letter: %s code=%s reason=%s", place, why.code, why)
        source = {
            REASON: str(why).encode()[:4000],
            CODE: why.code.encode(),
            TOPIC: message.topic.encode(),
            PARTITION: b"%d" % message.partition,
            OFFSET: b"%d" % message.offset,
        }
        topic, headers = self._settings.in_.dead_letters, {**message.headers, **source}
        try:
            await self._publisher.publish(topic, message.value, key=message.key, headers=headers)
        except ProviderRefused as error:
            if error.provider_code != "MSG_SIZE_TOO_LARGE":
                raise
            # The extra headers can make it too large; without the message they always fit, and
            # they say where it is in its source topic.
            await self._publisher.publish(topic, None, headers=source)
        published.add(message.offset)
        self.tally.dead_lettered[message.topic, why.code] += 1

    # ------------------------------------------------------------------ calls, on their thread

    def _subscribe(self, consumer: Consumer, topics: list[str]) -> None:
        consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _read(self, consumer: Consumer) -> list[Incoming]:
        first = consumer.consume(1, FIRST_MESSAGE_S)
        if not first:
            return []
        more = self._settings.in_.batch - 1
        self._revoked.clear()
        rest = consumer.consume(more, MORE_MESSAGES_S) if more else []
        # The second call may have revoked the partition of the first message.
        found = [one for one in first if (one.topic(), one.partition()) not in self._revoked]
        read_at = self._timing.wall_at()
        return [incoming(one, read_at) for one in (*found, *rest) if _is_message(one)]

    def _commit(self, consumer: Consumer) -> None:
        """Commit the offsets of stored messages; after a failure, the next commit includes them."""
        offsets = [TopicPartition(*place, offset) for place, offset in self._stored.items()]
        if not offsets:
            return
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            _log.warning("kafka commit failed: %s", error)
            if error.args[0].code() in _NOT_OURS:
                self._stored.clear()
            return
        self._stored.clear()

    def _update_partitions(self, consumer: Consumer) -> None:
        """Pause partitions with held messages, resume the others, and update the lag of each."""
        paused = self.tally.paused
        held = set(self._held)
        if held - paused:
            consumer.pause([TopicPartition(*place) for place in held - paused])
        if paused - held:
            consumer.resume([TopicPartition(*place) for place in paused - held])
        self.tally.paused = held
        for one in consumer.position(consumer.assignment()):
            low, high = consumer.get_watermark_offsets(one, cached=True) or (0, -1)
            if high < 0:
                continue  # nothing fetched from it yet
            place = (one.topic, one.partition)
            # It has no position until a message has been read from it after the assignment.
            start = self._start_offsets.get(place, low)
            behind = high - (one.offset if one.offset >= 0 else max(start, low))
            self.tally.lag[place] = max(0, behind) + len(self._held.get(place, ()))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Record each partition's committed offset, for the lag of idle partitions."""
        _log.info("kafka assigned: %s", _places(partitions))
        try:
            committed = consumer.committed(partitions, timeout=COMMITTED_LIMIT_S)
        except KafkaException as error:
            _log.warning("kafka committed offsets unavailable: %s", error)
            return
        self._start_offsets.update({(one.topic, one.partition): one.offset for one in committed})

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit the offsets of stored messages before the partitions are reassigned."""
        self._commit(consumer)
        self._forget(partitions)
        _log.info("kafka revoked: %s", _places(partitions))

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Forget lost partitions without committing: another consumer may own them already."""
        del consumer
        self._forget(partitions)
        _log.warning("kafka lost: %s", _places(partitions))

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            place = (one.topic, one.partition)
            self._revoked.add(place)
            self._held.pop(place, None)
            self._stored.pop(place, None)
            self._dead_lettered.pop(place, None)
            self._start_offsets.pop(place, None)
            self.tally.lag.pop(place, None)
            self.tally.paused.discard(place)

    def _close(self, consumer: Consumer) -> None:
        self._commit(consumer)
        consumer.close()


_NOT_OURS = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError._STATE,  # noqa: SLF001  (its name in the official client)
    }
)
"""Commit errors which mean that the partitions no longer belong to this consumer."""


def incoming(message: Message, read_at: int) -> Incoming:
    """Convert a message of the client library to a plain record.

    Args:
        read_at: ms UTC; replaces a missing timestamp.
    """
    named: Sequence[tuple[str, bytes | None]] | None = None
    has_bad_header = False
    try:
        named = cast("Sequence[tuple[str, bytes | None]] | None", message.headers())
    except (SystemError, UnicodeDecodeError):  # what the client raises for such a name
        has_bad_header = True
    kind, at = message.timestamp()
    return Incoming(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=message.key(),
        value=message.value(),
        headers=_NONE if not named else {name: value for name, value in named if value is not None},
        produced_at=at if kind else read_at,
        has_bad_header=has_bad_header,
        has_timestamp=bool(kind),
    )


_NONE: Mapping[str, bytes] = {}


def _is_message(message: Message) -> bool:
    error = message.error()
    if error is not None:
        _log.warning("kafka error: code=%s reason=%s", error.name(), error.str())
    return error is None


def _on_error(error: KafkaError) -> None:
    _log.warning("kafka error: code=%s reason=%s", error.name(), error.str())


def _places(partitions: Sequence[TopicPartition]) -> str:
    return " ".join(f"{one.topic}-{one.partition}" for one in partitions) or "none"
