"""Notifications of a Kafka topic: each value is a body of POST /notifications."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from headway.bridges.kafka.message import Incoming
from headway.bridges.kafka.sink import Put, Stored
from headway.core.errors import BacklogFull, CallerError, InvalidValue
from headway.server.service import Service
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.intake import NotificationBody, take_in


class NotificationSink:
    """Takes notifications in, as the route does.

    A message without a `dedupe_key` has its place in the topic as one, so one that is read twice
    is sent once; the window of deduplication must be longer than a bridge may stand still.

    Args:
        service: of a server, which need not serve.
    """

    def __init__(self, service: Service, context: NotifyContext) -> None:
        self._service = service
        self._context = context

    async def put(self, messages: Sequence[Incoming]) -> Put:
        """See `Sink.put`."""
        stored = Stored()
        bodies: list[tuple[int, NotificationBody]] = []
        for index, message in enumerate(messages):
            try:
                bodies.append((index, _body(message)))
            except InvalidValue as error:
                stored.unreadable[index] = error
        await self._take(bodies, stored)
        return stored

    async def _take(self, bodies: list[tuple[int, NotificationBody]], stored: Stored) -> None:
        """Take bodies in; what is refused is set aside, and the others are taken once more.

        Raises:
            BacklogFull: a lane takes no more.
        """
        if not bodies:
            return
        try:
            taken = await take_in(self._service, self._context, [body for _, body in bodies])
        except BacklogFull:
            raise
        except CallerError as error:
            # Nothing was stored. It names one of them by its index, or none.
            problem: dict[str, int] = vars(error).get("problem", {})
            at = problem.get("item", 0 if len(bodies) == 1 else None)
            if at is None:
                half = len(bodies) // 2
                await self._take(bodies[:half], stored)
                await self._take(bodies[half:], stored)
                return
            index, _ = bodies.pop(at)
            stored.unreadable[index] = error
            await self._take(bodies, stored)
            return
        stored.created += sum(one.created for one in taken)


def _body(message: Incoming) -> NotificationBody:
    """Read a body.

    Raises:
        InvalidValue: it is none.
    """
    try:
        body = NotificationBody.model_validate_json(message.value or b"")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = f"{place}: {first['msg']}" if place else first["msg"]
        raise InvalidValue(text) from None
    if body.dedupe_key is not None:
        return body
    return body.model_copy(update={"dedupe_key": message.place})
