"""GET and PUT /field-service/settings: how long offers stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Response

from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply_model
from headway.server.routes.router import TheService, router
from headway.systems.field_service.bodies import TimesBody
from headway.systems.field_service.desk import Desk, TheDesk
from headway.systems.field_service.offer_times import current_times, set_times
from headway.systems.field_service.request import Urgency

ROUTES = router("system: field_service")


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferTimesNow:
    """How long the next offers stand.

    Attributes:
        offer_timeout_ms: where the urgency has no time of its own.
        urgency_ms: of each urgency.
    """

    offer_timeout_ms: int
    urgency_ms: dict[str, int]


TIMES = reply_model(OfferTimesNow)


@ROUTES.get(
    "/field-service/settings",
    operation_id="field_times",
    summary="How long offers stand",
    response_model=TIMES,
)
async def times(
    service: TheService, desk: TheDesk, caller: Annotated[Caller, needs(Permission.OBSERVE)]
) -> Response:
    """How long the next offers stand, by urgency."""
    del service
    caller.every_tenant()
    return await _tell(desk)


@ROUTES.put(
    "/field-service/settings",
    operation_id="field_set_times",
    summary="Say how long offers stand",
    response_model=TIMES,
)
async def change(
    body: TimesBody,
    service: TheService,
    desk: TheDesk,
    caller: Annotated[Caller, needs(Permission.DEFINE)],
) -> Response:
    """Holds from the next offer on; an offer that stands is not changed.

    What is left out is as the file says.
    """
    del service
    caller.every_tenant()
    await set_times(desk.directory, body.offer_timeout, {**body.urgency})
    return await _tell(desk)


async def _tell(desk: Desk) -> Response:
    now = await current_times(desk.directory, desk.settings.times)
    by_urgency = {str(one): now.of(one) for one in Urgency}
    return answer(OfferTimesNow(offer_timeout_ms=now.offer_timeout_ms, urgency_ms=by_urgency))
