"""The two ends of the pipeline through the brokers: a steady producer, and the consumer."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headway.bridges.kafka.publishing import ATTEMPT, JOB
from tests.bridges.kafka.rig import QUIET, Topics
from tests.torture.brokers_app import CHANNELS
from tests.torture.brokers_judge import PARTS, Arrival, Part, Planned
from tests.torture.brokers_site import HORIZON_S, MARGIN_S, NEAR, RECIPIENTS, SOON
from tests.torture.notify_providers import now_ms

SHARES: dict[Part, float] = {"now": 0.46, "later": 0.44, "burst": 0.06, "open": 0.04}
BEYOND_S = HORIZON_S + MARGIN_S + 45
"""Messages of `later` and `burst` are due no earlier: the bridges' lag must not exceed the last
term, or the messages go into the store at once."""
EACH_MS = 20_000
"""Messages of `burst` are due at whole multiples of this."""
SPREAD_S = 30
SOON_S = (3.0, HORIZON_S - 10.0)
"""When messages of `open` are due, from their sending: in minutes that the leader has started."""
STEP_S = 0.01
FLUSH_S = 300.0


class Sending(threading.Thread):
    """Sends messages to the broker at a steady rate; a message counts once it is acknowledged.

    Attributes:
        accepted: acknowledged messages, by number.
        begun_at, ended_at: ms UTC; 0 until then.
    """

    def __init__(self, topics: Topics, seed: int, messages: int, rate: float) -> None:
        super().__init__(name="near end", daemon=True)
        self.accepted: dict[int, Planned] = {}
        self.begun_at = self.ended_at = 0
        self._producer = topics.producer()
        self._draw = random.Random(f"brokers {seed}")
        self._messages, self._rate = messages, rate

    def run(self) -> None:
        """Send all messages, catching up after late steps."""
        self.begun_at, begun_s = now_ms(), time.monotonic()
        for number in range(self._messages):
            while number > (time.monotonic() - begun_s) * self._rate:
                self._producer.poll(STEP_S)
            self._send(number)
        self.ended_at = now_ms()
        self._producer.flush(FLUSH_S)

    def _send(self, number: int) -> None:
        draw, at = self._draw, now_ms()
        part = draw.choices(PARTS, [SHARES[one] for one in PARTS])[0]
        channel = draw.choice(CHANNELS)
        due_at = at
        if part in {"later", "burst"}:
            due_at += int((BEYOND_S + draw.uniform(0, SPREAD_S)) * 1000)
        if part == "burst":
            due_at += -due_at % EACH_MS
        if part == "open":
            due_at += int(draw.uniform(*SOON_S) * 1000)
        body = {
            "recipient": f"r{draw.randrange(RECIPIENTS)}",
            "channel": channel,
            "title": "Torture",
            "text": f"No. {number}.",
            "data": {"number": number, "part": part},
            "category": "news",
        }
        if part != "now":
            body["scheduled_at"] = due_at
        topic = SOON if part == "open" else NEAR
        planned = Planned(number, channel, part, due_at)
        while True:
            try:
                on_delivery = partial(self._delivered, planned)
                self._producer.produce(topic, json.dumps(body).encode(), on_delivery=on_delivery)
            except BufferError:
                self._producer.poll(1)
            else:
                return

    def _delivered(self, planned: Planned, error: KafkaError | None, message: Message) -> None:
        del message
        if error is None:
            self.accepted[planned.number] = planned


class Counting(threading.Thread):
    """Reads the topics of the far end from their beginning, through every outage.

    Attributes:
        arrivals: each message once, in order of arrival.
        numbers: the numbers of all of them.
        of_bursts: how many were due together with many others.
    """

    def __init__(self, address: str) -> None:
        super().__init__(name="far end", daemon=True)
        self.arrivals: list[Arrival] = []
        self.numbers: set[int] = set()
        self.of_bursts = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "far end",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                **QUIET,
            }
        )
        self._read: dict[str, int] = {}
        self._over = threading.Event()

    def run(self) -> None:
        """Read until `end` is called."""
        self._consumer.assign([TopicPartition(channel, 0, 0) for channel in CHANNELS])
        while not self._over.is_set():
            messages = self._consumer.consume(1_000, 0.02)
            at = now_ms()
            for one in messages:
                if one.error() is None:
                    self._take(one, at)
        self._consumer.close()

    def end(self) -> Sequence[Arrival]:
        """Stop reading; return the arrivals."""
        self._over.set()
        self.join()
        return self.arrivals

    def _take(self, message: Message, at: int) -> None:
        topic, offset = message.topic() or "", message.offset() or 0
        if offset < self._read.get(topic, 0):
            return  # read again after an outage
        self._read[topic] = offset + 1
        headers = dict(message.headers() or [])
        job = headers.get(JOB)
        data = json.loads(message.value() or b"{}")
        self.arrivals.append(
            Arrival(
                number=data["number"],
                topic=topic,
                job=job.decode() if isinstance(job, bytes) else None,
                attempt=int(headers.get(ATTEMPT) or 0),
                appended_at=message.timestamp()[1],
                at=at,
            )
        )
        self.numbers.add(data["number"])
        self.of_bursts += data["part"] == "burst"
