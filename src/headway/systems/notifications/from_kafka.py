"""Notifications from a Kafka topic: each value is a body of POST /notifications."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pydantic import ValidationError

from headway.bridges.kafka.message import Incoming, Stored, read_json
from headway.core.errors import InvalidValue
from headway.runtime.faults import faults, sentence
from headway.server.service import Service
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.intake import NotificationBody, create_notifications


class NotificationSink:
    """Creates notifications like the route; the server need not be running.

    A message without a `dedupe_key` gets its place in the topic as one, so that a message read
    twice is sent once. The dedupe window must be longer than a bridge may be stopped.
    """

    def __init__(self, service: Service, context: NotifyContext) -> None:
        self._create_notifications = partial(create_notifications, service, context)

    async def put(self, messages: Sequence[Incoming]) -> Stored:
        """See `Sink.put`."""
        stored = Stored()
        await stored.store(stored.read(messages, _body), self._create_notifications)
        return stored


def _body(message: Incoming) -> NotificationBody:
    try:
        body = NotificationBody.model_validate(read_json(message))
    except ValidationError as error:
        found = faults(error.errors(include_url=False, include_input=False))
        raise InvalidValue(sentence(found)) from None
    if body.dedupe_key is not None:
        return body
    return body.model_copy(update={"dedupe_key": message.place})
