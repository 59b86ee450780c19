"""Kafka: messages become jobs, and jobs become messages when they are due.

`KafkaIn` reads topics and enqueues; `declare_kafka` adds the kinds of jobs that publish.
"""

from __future__ import annotations

from headway.bridges.kafka.publishing import KafkaKinds, declare_kafka
from headway.bridges.kafka.settings import KafkaSettings, read_kafka_settings

__all__ = ["KafkaKinds", "KafkaSettings", "declare_kafka", "read_kafka_settings"]
