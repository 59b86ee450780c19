"""A producer whose acknowledgements can be awaited."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.runtime.timing import REAL, Timing

_FULL_PAUSE = 0.02  # seconds, while librdkafka's queue has no room
_POLL = 0.2

_log = logging.getLogger("headway.kafka")


class Acknowledged(NamedTuple):
    """Where the broker keeps a message."""

    partition: int
    offset: int


class Publisher:
    """Publishes messages; librdkafka batches what is published meanwhile.

    Its callbacks are called on a thread of its own, which ends with the process.

    Args:
        config: of librdkafka; see `producer_config`.
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
        """Publish a message; when this returns, the broker has acknowledged it.

        Messages of one key are appended in the order in which this was called. It waits for as
        long as the broker is away.

        Raises:
            failure: `ProviderRefused`, it is not in the topic; `ProviderUnsure`, it may be.
        """
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Acknowledged] = self._loop.create_future()
        on_delivery = partial(self._delivered, future)
        named: list[tuple[str, str | bytes | None]] = [*(headers or {}).items()]
        while True:
            producer = self._producer or self._start()
            try:
                # Returns at once: it is put into a queue of librdkafka.
                producer.produce(topic, value, key, headers=named, on_delivery=on_delivery)
                break
            except BufferError:
                await self._timing.pause(_FULL_PAUSE)
            except KafkaException as error:
                raise failure(error.args[0], sent=False) from None
        return await future

    def _start(self) -> Producer:
        """Start a producer and the thread that polls it."""
        made = Producer({**self._config, "error_cb": self._on_error})
        self._producer = made
        threading.Thread(
            target=self._poll, args=(made,), name="headway-kafka-producer", daemon=True
        ).start()
        return made

    def _poll(self, producer: Producer) -> None:
        while self._producer is producer or len(producer):
            producer.poll(_POLL)
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
        """Give callers what the thread has collected, in the loop."""
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
            # Nothing can be published with this producer any more: the next call makes another.
            producer, self._producer = self._producer, None
            if producer is not None:
                producer.purge(blocking=False)

    def close(self) -> None:
        """Give up what is not acknowledged, and end the thread."""
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
    """Return an error of the client as one of Headway's.

    Args:
        error: of the client or the broker.
        sent: whether the message may have left this process.
    """
    message = f"the message was not acknowledged: {error.name()}: {error.str()}"
    if sent and error.code() not in _REFUSED:
        return ProviderUnsure(message)
    return ProviderRefused(message, provider_code=error.name())
