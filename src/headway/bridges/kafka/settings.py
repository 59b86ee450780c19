"""The table [kafka] of the settings, and the settings of Kafka's client that follow from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from headway.core.job import MAX_BATCH
from headway.runtime.settings_table import Span, Table, read_table

Name = Annotated[str, Field(min_length=1, max_length=249)]

ValueFormat = Literal["json", "avro", "protobuf", "notifications"]

_log = logging.getLogger("headway.kafka")


class InSettings(Table):
    """What is read, and where it goes."""

    topics: tuple[Name, ...] = Field(default=(), description="The topics that are read.")
    group: Name = Field(default="headway", description="The consumer group of all bridges.")
    format: ValueFormat = Field(default="json", description="What a message's value is.")
    message_type: str = Field(
        default="", description="Of protobuf: the generated class, as package.module:Class."
    )
    kind: str | None = Field(
        default=None, description="The kind of messages without the header headway-kind."
    )
    lane: str | None = Field(
        default=None, description="The lane of messages without the header headway-lane."
    )
    key: Literal["message", "offset"] = Field(
        default="message",
        description="What makes a job's key: the message's key, or topic, partition and offset.",
    )
    dead_letters: Name = Field(
        default="headway.dead-letters", description="Where messages go that cannot be read."
    )
    batch: int = Field(
        default=MAX_BATCH, ge=1, le=MAX_BATCH, description="Messages of one enqueue, at most."
    )
    start: Literal["earliest", "latest"] = Field(
        default="earliest", description="Where a group begins that has committed nothing."
    )
    lag_above: int = Field(
        default=100_000, ge=0, description="Messages behind in a partition, for the alert."
    )
    lag_for: Span = Field(default=300_000, description="How long that lasts before it alerts.")


class OutSettings(Table):
    """How jobs are published."""

    lane: str = Field(default="kafka", description="Where the jobs wait.")
    linger_ms: int = Field(
        default=5, ge=0, le=10_000, description="How long a batch waits for more messages."
    )


class KafkaSettings(Table):
    """Kafka, and the two ways."""

    servers: str = Field(
        default="127.0.0.1:9092", description="host:port of brokers, separated by commas."
    )
    client: dict[str, str | int | float | bool] = Field(
        default={}, repr=False, description="Settings of librdkafka, such as security.protocol."
    )
    schema_registry: str | None = Field(
        default=None, repr=False, description="The URL of the schema registry."
    )
    in_: InSettings = Field(default=InSettings(), alias="in", description="Messages into jobs.")
    out: OutSettings = Field(default=OutSettings(), description="Jobs into messages.")


def read_kafka_settings(written: Mapping[str, object]) -> KafkaSettings:
    """Read the table [kafka]."""
    return read_table("kafka", KafkaSettings, written)


def client_config(settings: KafkaSettings) -> dict[str, object]:
    """Settings of librdkafka that every client shares; what the user wrote wins."""
    return {
        "bootstrap.servers": settings.servers,
        "client.id": "headway",
        "logger": _log,
        **settings.client,
    }


def consumer_config(settings: KafkaSettings) -> dict[str, object]:
    """Settings of the consumer: offsets are committed by the bridge alone, after the enqueue."""
    return {
        "partition.assignment.strategy": "cooperative-sticky",
        "auto.offset.reset": settings.in_.start,
        **client_config(settings),
        "group.id": settings.in_.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }


def producer_config(settings: KafkaSettings) -> dict[str, object]:
    """Settings of the producer.

    A message has no timeout: librdkafka sends it until the broker has acknowledged it, so an
    outage of the broker neither fails a job nor lets a later message of a partition pass.
    """
    return {
        "linger.ms": settings.out.linger_ms,
        "compression.type": "lz4",
        **client_config(settings),
        "enable.idempotence": True,
        "message.timeout.ms": 0,
    }
