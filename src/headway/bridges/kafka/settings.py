"""The settings table [kafka], and the client settings derived from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from headway.core.job import MAX_BATCH
from headway.runtime.settings_table import Span, Table, read_table

_Name = Annotated[str, Field(min_length=1, max_length=249)]

Plain = str | int | float | bool
_OBJECTS = frozenset({"logger", "default.topic.config", "on_commit", "on_delivery"})
"""Settings of the client library that are Python objects, besides the callbacks `…_cb`."""

ValueFormat = Literal["json", "avro", "protobuf", "notifications"]

_log = logging.getLogger("headway.kafka")


def _plain_settings(client: dict[str, Plain]) -> dict[str, Plain]:
    """Refuse settings whose values the client library does not take from a file.

    Its errors for them are not KafkaExceptions, and name neither the table nor the value.

    Raises:
        ValueError: a setting cannot be given in a file, or not with this value.
    """
    for name, value in client.items():
        if name.endswith("_cb") or name in _OBJECTS:
            message = f"{name} is {value!r:.80}, but must be a Python object: leave it out"
            raise ValueError(message)
        if name == "delivery.report.only.error" and not isinstance(value, bool):
            message = f"{name} is {value!r:.80}: it should be true or false"
            raise ValueError(message)
    return client


class InSettings(Table):
    """Settings for turning messages into jobs."""

    topics: tuple[_Name, ...] = Field(default=(), description="Topics to read.")
    group: _Name = Field(default="headway", description="Consumer group of all bridges.")
    format: ValueFormat = Field(default="json", description="Format of a message's value.")
    message_type: str = Field(
        default="",
        description="Generated class of protobuf values, as package.module:Class.",
    )
    kind: str | None = Field(
        default=None, description="Kind for messages without the header headway-kind."
    )
    lane: str | None = Field(
        default=None, description="Lane for messages without the header headway-lane."
    )
    key: Literal["message", "offset"] = Field(
        default="message",
        description="Source of a job's key: the message's key, or topic, partition, offset and "
        "timestamp.",
    )
    dead_letters: _Name = Field(
        default="headway.dead-letters", description="Topic for messages that cannot be read."
    )
    batch: int = Field(
        default=MAX_BATCH, ge=1, le=MAX_BATCH, description="Maximum number of messages per enqueue."
    )
    start: Literal["earliest", "latest"] = Field(
        default="earliest", description="Where a group without committed offsets starts."
    )
    lag_above: int = Field(
        default=100_000, ge=0, description="Lag of a partition, in messages, above which to alert."
    )
    lag_for: Span = Field(default=300_000, description="How long the lag lasts before it alerts.")

    @model_validator(mode="after")
    def _letters_apart(self) -> Self:
        if self.dead_letters in self.topics:
            message = f"{self.dead_letters!r} is read, too: each dead letter would cause another"
            raise ValueError(message)
        return self


class OutSettings(Table):
    """Settings for publishing jobs."""

    lane: str = Field(default="kafka", description="Lane of the jobs that publish.")
    linger_ms: int = Field(
        default=5,
        ge=0,
        le=10_000,
        description="Milliseconds that a batch waits for more.",
    )


class KafkaSettings(Table):
    """The table [kafka]: connection, and both directions."""

    servers: str = Field(
        default="127.0.0.1:9092", description="Brokers as host:port, separated by commas."
    )
    client: Annotated[dict[str, Plain], AfterValidator(_plain_settings)] = Field(
        default={}, repr=False, description="Settings of librdkafka, such as security.protocol."
    )
    schema_registry: str | None = Field(
        default=None, repr=False, description="URL of the schema registry."
    )
    in_: InSettings = Field(default=InSettings(), alias="in", description="Messages into jobs.")
    out: OutSettings = Field(default=OutSettings(), description="Jobs into messages.")


def read_kafka_settings(written: Mapping[str, object]) -> KafkaSettings:
    """Read the table [kafka]."""
    return read_table("kafka", KafkaSettings, written)


def client_config(settings: KafkaSettings) -> dict[str, object]:
    """Return the librdkafka settings of every client; the user's settings take precedence."""
    return {
        "bootstrap.servers": settings.servers,
        "client.id": "headway",
        "logger": _log,
        **settings.client,
    }


def consumer_config(settings: KafkaSettings) -> dict[str, object]:
    """Return the consumer's settings: only the bridge commits offsets, after the enqueue."""
    return {
        "partition.assignment.strategy": "cooperative-sticky",
        "auto.offset.reset": settings.in_.start,
        **client_config(settings),
        "group.id": settings.in_.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }


def producer_config(settings: KafkaSettings) -> dict[str, object]:
    """Return the producer's settings.

    Messages have no timeout: librdkafka sends a message until the broker acknowledges it, so an
    outage neither fails a job nor lets a later message of the partition overtake.
    """
    return {
        "linger.ms": settings.out.linger_ms,
        "compression.type": "lz4",
        **client_config(settings),
        "enable.idempotence": True,
        "message.timeout.ms": 0,
    }
