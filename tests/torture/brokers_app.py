"""Publish notifications when they are due: each to the Kafka topic of its channel.

An App for `headway worker`: it runs the jobs that the system `notifications` creates.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

import headway as hw
from headway.bridges.kafka.publishing import ATTEMPT, JOB, Publisher
from headway.bridges.kafka.settings import producer_config, read_kafka_settings
from headway.systems.notifications.notification import NOTIFICATION, Channel

CHANNELS = ("push", "sms", "email")
LEASE = "10s"
SERVERS = "HEADWAY_TEST_RIG_SERVERS"
"""The environment variable with the brokers' addresses."""

app = hw.App()
settings = read_kafka_settings({"servers": os.environ.get(SERVERS, "")})
publisher = Publisher(producer_config(settings))


async def publish(job: hw.Job, data: dict[str, Any], **_: Any) -> dict[str, str]:
    """Publish a message; the job ends at the broker's ack, and is repeated if killed before."""
    headers = {JOB: job.id.encode(), ATTEMPT: b"%d" % job.attempt}
    key = (job.subject or "").encode()
    await publisher.publish(job.stage, msgspec.json.encode(data), key=key, headers=headers)
    return {"status": "SENT", "channel": job.stage}


kind = app.job(
    name=NOTIFICATION,
    lane=Channel(CHANNELS[0]).lane,
    stages={channel: [] for channel in CHANNELS},
)(publish)
for channel in CHANNELS:
    app.lane(Channel(channel).lane, lease=LEASE)
for channel in CHANNELS[1:]:
    kind.stage(channel)(publish)
