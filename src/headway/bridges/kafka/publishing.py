"""Kafka out: job kinds that publish a message when due, and the producer."""

from __future__ import annotations

import asyncio
import logging
import threading
from base64 import b64decode
from binascii import Error as NotBase64
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Literal, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headway.bridges.kafka.settings import KafkaSettings, producer_config, read_kafka_settings
from headway.core.errors import InvalidValue, ProviderError, ProviderRefused, ProviderUnsure
from headway.core.gates.slots import Slots
from headway.core.retry import Backoff
from headway.runtime.app import App
from headway.runtime.handler_results import Dead, Retry
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.timing import REAL, Timing


@dataclass(slots=True)
class PublishingCounts:
    """Counts by topic, and lag by topic and partition; each has a single writer."""

    consumed: Counter[str] = field(default_factory=Counter[str])
    enqueued: Counter[str] = field(default_factory=Counter[str])
    dead_lettered: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    published: Counter[str] = field(default_factory=Counter[str])
    failed: Counter[str] = field(default_factory=Counter[str])
    lag: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    paused: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


_FULL_PAUSE_S = 0.02
"""How long to wait while librdkafka's queue is full."""
_POLL_S = 0.2

_log = logging.getLogger("headway.kafka")


class Acknowledged(NamedTuple):
    """Where the broker stored a message."""

    partition: int
    offset: int


class Publisher:
    """A producer of messages, which librdkafka batches.

    A daemon thread polls it and runs its callbacks.

    Args:
        config: settings of librdkafka; see `producer_config`.
    """

    def __init__(self, config: Mapping[str, object], *, timing: Timing = REAL) -> None:
        self._config = dict(config)
        self._timing = timing
        self._producer: Producer | None = None
        self._ended: deque[tuple[asyncio.Future[Acknowledged], Acknowledged | KafkaError]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> Acknowledged:
        """Publish a message, and return once the broker has acknowledged it.

        Messages with the same key are appended in the order of the calls. While the broker is
        unavailable, the call waits without a timeout.

        Raises:
            InvalidValue: a setting of the client is not valid for a producer.
            failure: `ProviderRefused` if the message is not in the topic, `ProviderUnsure` if it
                may be.
        """
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Acknowledged] = self._loop.create_future()
        on_delivery = partial(self._delivered, future)
        named: list[tuple[str, str | bytes | None]] = [*(headers or {}).items()]
        while True:
            producer = self._producer or self._start()
            try:
                # Returns immediately: librdkafka queues the message.
                producer.produce(topic, value, key, headers=named, on_delivery=on_delivery)
                break
            except BufferError:
                await self._timing.pause(_FULL_PAUSE_S)
            except KafkaException as error:
                raise failure(error.args[0], sent=False) from None
        return await future

    def _start(self) -> Producer:
        """Start a producer and the thread that polls it.

        Raises:
            InvalidValue: a setting of the client is not valid for a producer.
        """
        try:
            made = Producer({**self._config, "error_cb": self._on_error})
        except KafkaException as error:
            message = f"a setting of [kafka.client] is not valid: {error.args[0].str()}"
            raise InvalidValue(message) from None
        self._producer = made
        threading.Thread(
            target=self._poll, args=(made,), name="headway-kafka-producer", daemon=True
        ).start()
        return made

    def _poll(self, producer: Producer) -> None:
        while self._producer is producer or len(producer):
            producer.poll(_POLL_S)
            if self._ended and self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._resolve)

    def _delivered(
        self, future: asyncio.Future[Acknowledged], error: KafkaError | None, message: Message
    ) -> None:
        if error is None:
            self._ended.append(
                (future, Acknowledged(message.partition() or 0, message.offset() or 0))
            )
        else:
            self._ended.append((future, error))

    def _resolve(self) -> None:
        """Resolve the futures of delivered messages, on the event loop."""
        while self._ended:
            future, end = self._ended.popleft()
            if future.done():
                continue
            if isinstance(end, Acknowledged):
                future.set_result(end)
            else:
                future.set_exception(failure(end, sent=True))

    def _on_error(self, error: KafkaError) -> None:
        _log.warning("kafka error: code=%s reason=%s", error.name(), error.str())
        if error.fatal():
            # A fatal error makes the producer unusable: the next call starts a new one.
            self.close()

    def close(self) -> None:
        """Drop unacknowledged messages, and stop the thread."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge(blocking=False)


_REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  (its name in the official client)
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._INVALID_ARG,  # noqa: SLF001
    }
)


def failure(error: KafkaError, *, sent: bool) -> ProviderRefused | ProviderUnsure:
    """Convert an error of the client library to one of Headway's.

    Args:
        sent: whether the message may have left this process.
    """
    message = f"the message was not acknowledged: {error.name()}: {error.str()}"
    if sent and error.code() not in _REFUSED:
        return ProviderUnsure(message)
    return ProviderRefused(message, provider_code=error.name())


PUBLISH = "kafka.publish"
PUBLISH_IN_ORDER = "kafka.publish_in_order"

JOB, ATTEMPT = "headway-job", "headway-attempt"

Encoding = Literal["json", "text", "base64"]


class KafkaKinds(NamedTuple):
    """The kinds that publish.

    Attributes:
        publish: publishes when due; messages with the same key are usually in order of their due
            times.
        publish_in_order: publishes one message of a topic and key at a time, each acknowledged
            before the next, with any number of workers and even if one is killed. Only a refused
            message is overtaken, while it waits for a retry. Requires `message_key`.
        publisher: the publisher of both kinds; `close` stops it.
    """

    publish: Kind
    publish_in_order: Kind
    publisher: Publisher
    tally: PublishingCounts


class _PublishHandler:
    """Publishes the message of a job, and counts the result."""

    def __init__(self, publisher: Publisher, counts: PublishingCounts) -> None:
        self._publisher = publisher
        self._counts = counts

    async def publish(
        self,
        job: Job,
        topic: str,
        value: object,
        key: str | None,
        headers: Mapping[str, str] | None,
        encoding: Encoding,
    ) -> dict[str, int]:
        try:
            payload = _payload(value, encoding)
            acknowledged = await self._publisher.publish(
                topic,
                payload,
                key=None if key is None else key.encode(),
                headers=_headers(job, headers),
            )
        except ProviderRefused as error:
            self._counts.failed[topic] += 1
            if error.provider_code in _NEVER:
                raise Dead(error.message) from None
            delay = timedelta(milliseconds=_RETRY_REFUSED.delay_ms(job.attempt, job.ref))
            raise Retry(error.message, after=delay) from error
        except ProviderError:
            self._counts.failed[topic] += 1
            raise
        self._counts.published[topic] += 1
        return acknowledged._asdict()


def declare_kafka(
    app: App,
    servers: str | None = None,
    *,
    settings: KafkaSettings | None = None,
) -> KafkaKinds:
    """Add the kinds `kafka.publish` and `kafka.publish_in_order`; the first job connects.

    Args:
        servers: brokers as host:port, separated by commas.
    """
    given = settings or read_kafka_settings({} if servers is None else {"servers": servers})
    publisher = Publisher(producer_config(given))
    counts = PublishingCounts()
    handler = _PublishHandler(publisher, counts)

    @app.job(name=PUBLISH, lane=given.out.lane, retry=_RETRY_REFUSED)
    async def publish(
        job: Job,
        topic: str,
        value: object = None,
        message_key: str | None = None,
        headers: dict[str, str] | None = None,
        encoding: Encoding = "json",
    ) -> dict[str, int]:
        return await handler.publish(job, topic, value, message_key, headers, encoding)

    @app.job(
        name=PUBLISH_IN_ORDER,
        lane=given.out.lane,
        # If a worker is lost, the message is published again immediately, before later messages
        # with its key.
        retry=Backoff(attempts=_RETRY_REFUSED.attempts, base="0s", cap="0s"),
        gates=[Slots("kafka:{topic}:{message_key}", 1)],
    )
    async def publish_in_order(
        job: Job,
        topic: str,
        message_key: str,
        value: object = None,
        headers: dict[str, str] | None = None,
        encoding: Encoding = "json",
    ) -> dict[str, int]:
        return await handler.publish(job, topic, value, message_key, headers, encoding)

    return KafkaKinds(publish, publish_in_order, publisher, counts)


_RETRY_REFUSED = Backoff(attempts=20, base="1s", cap="5m")
_NEVER = frozenset({"MSG_SIZE_TOO_LARGE", "TOPIC_EXCEPTION", "INVALID_MSG_SIZE", "_INVALID_ARG"})
"""Refusals that a retry cannot fix."""


def _payload(value: object, encoding: Encoding) -> bytes | None:
    """Encode a message's value; null (in any encoding) is a message without a value.

    Raises:
        Dead: the value does not match the encoding.
    """
    if value is None:
        return None
    if encoding == "json":
        return msgspec.json.encode(value)
    if not isinstance(value, str):
        message = f"the value is not text, and its encoding is {encoding}"
        raise Dead(message)
    if encoding == "text":
        return value.encode()
    try:
        return b64decode(value, validate=True)
    except (NotBase64, ValueError):
        message = "the value is not base64"
        raise Dead(message) from None


def _headers(job: Job, given: Mapping[str, str] | None) -> dict[str, bytes]:
    """Return the given headers, plus those that identify a repeated message."""
    headers = {name: value.encode() for name, value in (given or {}).items()}
    return {**headers, JOB: job.id.encode(), ATTEMPT: b"%d" % job.attempt}
