"""Kafka out: the kinds of jobs that publish a message at their due moment."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, NamedTuple

import msgspec

from headway.bridges.kafka.publisher import Publisher
from headway.bridges.kafka.settings import (
    KafkaSettings,
    producer_config,
    read_kafka_settings,
)
from headway.bridges.kafka.tally import Tally
from headway.core.errors import ProviderError, ProviderRefused
from headway.core.gates.slots import Slots
from headway.core.retry import Backoff
from headway.runtime.answers import Dead, Retry
from headway.runtime.app import App
from headway.runtime.job import Job
from headway.runtime.kind import Kind

PUBLISH = "kafka.publish"
PUBLISH_IN_ORDER = "kafka.publish_in_order"

JOB, ATTEMPT = "headway-job", "headway-attempt"

Encoding = Literal["json", "text", "base64"]


class KafkaKinds(NamedTuple):
    """The kinds that publish.

    Attributes:
        publish: as soon as it is due; those of a key usually in the order in which they were due.
        publish_in_order: one message of a topic and key at a time, each acknowledged before the
            next, with any number of workers and though one is killed; only a refused message is
            passed by later ones while it waits. `message_key` must be given.
        publisher: what they publish with; `close` ends it.
    """

    publish: Kind
    publish_in_order: Kind
    publisher: Publisher
    tally: Tally


def declare_kafka(
    app: App,
    servers: str | None = None,
    *,
    settings: KafkaSettings | None = None,
    tally: Tally | None = None,
) -> KafkaKinds:
    """Add the kinds `kafka.publish` and `kafka.publish_in_order` to an app.

    Args:
        servers: host:port of brokers, separated by commas.

    Returns:
        The kinds; nothing is connected before the first job.
    """
    given = settings or read_kafka_settings({} if servers is None else {"servers": servers})
    publisher = Publisher(producer_config(given))
    counts = tally or Tally()

    async def send(
        job: Job,
        topic: str,
        value: object,
        key: str | None,
        headers: Mapping[str, str] | None,
        encoding: Encoding,
    ) -> dict[str, int]:
        try:
            payload = _payload(value, encoding)
            acknowledged = await publisher.publish(
                topic,
                payload,
                key=None if key is None else key.encode(),
                headers=_headers(job, headers),
            )
        except ProviderRefused as error:
            counts.failed[topic] += 1
            if error.provider_code in _NEVER:
                raise Dead(error.message) from None
            delay = timedelta(milliseconds=_REFUSED.delay_ms(job.attempt, job.ref))
            raise Retry(error.message, after=delay) from error
        except ProviderError:
            counts.failed[topic] += 1
            raise
        counts.published[topic] += 1
        return acknowledged._asdict()

    @app.job(name=PUBLISH, lane=given.out.lane, retry=_REFUSED)
    async def publish(
        job: Job,
        topic: str,
        value: object = None,
        message_key: str | None = None,
        headers: dict[str, str] | None = None,
        encoding: Encoding = "json",
    ) -> dict[str, int]:
        return await send(job, topic, value, message_key, headers, encoding)

    @app.job(
        name=PUBLISH_IN_ORDER,
        lane=given.out.lane,
        # After a lost worker the message is published again at once, before later ones of its key.
        retry=Backoff(attempts=_REFUSED.attempts, base="0s", cap="0s"),
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
        return await send(job, topic, value, message_key, headers, encoding)

    return KafkaKinds(publish, publish_in_order, publisher, counts)


_REFUSED = Backoff(attempts=20, base="1s", cap="5m")
_NEVER = frozenset({"MSG_SIZE_TOO_LARGE", "TOPIC_EXCEPTION", "INVALID_MSG_SIZE", "_INVALID_ARG"})
"""Refusals that another attempt gets too."""


def _payload(value: object, encoding: Encoding) -> bytes | None:
    """Return a message's value; JSON's null in plain JSON is a message without one.

    Raises:
        Dead: it has another encoding than was said.
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
    """Return the headers of a message: those given, and what makes a repetition recognisable."""
    headers = {name: value.encode() for name, value in (given or {}).items()}
    return {**headers, JOB: job.id.encode(), ATTEMPT: b"%d" % job.attempt}
