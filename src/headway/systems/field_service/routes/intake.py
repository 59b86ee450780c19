"""POST /service-requests."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response

from headway.contract.views import JobQuery
from headway.core.errors import InvalidValue, StoreUnavailable
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.for_callers.sending import send_jobs
from headway.server.routes.router import TheService, router
from headway.systems.field_service.bodies import RequestBody
from headway.systems.field_service.desk import Desk, TheDesk
from headway.systems.field_service.geocoder import find_position
from headway.systems.field_service.intake import candidates_for, jobs_for
from headway.systems.field_service.names import OFFERS
from headway.systems.field_service.request import Position, Request
from headway.systems.field_service.routes.telling import REQUEST, tell

ROUTES = router("system: field_service")


@ROUTES.post(
    "/service-requests",
    operation_id="field_request",
    summary="Ask for a technician",
    status_code=201,
    response_model=REQUEST,
    response_description="It is being dispatched, or pending if nobody is near.",
    responses={200: {"model": REQUEST, "description": "It was there, by its key."}},
)
async def intake(
    body: RequestBody,
    service: TheService,
    desk: TheDesk,
    caller: Annotated[Caller, needs(Permission.SEND)],
) -> Response:
    """Takes a form, and answers at once: nobody has been called yet.

    Those on duty with all the skills within the radius are asked one after another, nearest
    first. With nobody there the request is pending at once, and dispatchers are alerted. An
    address without a position needs a geocoder (422 without one, 503 if it is away).

    Raises:
        StoreUnavailable: it was stored, and cannot be read.
    """
    caller.check_tenant("")
    caller.check_lane(OFFERS)
    request = Request(
        customer=body.customer.read(),
        position=await _position(desk, body),
        skills=tuple(body.skills),
        urgency=body.urgent,
        address=body.address,
        description=body.description,
    )
    jobs = jobs_for(desk, request, await candidates_for(desk, request), key=body.key)
    sent = (await send_jobs(service, jobs, caller=caller))[0]
    job = await service.store.read(JobQuery(id=sent.id))
    if job is None:
        message = "the request was stored, and is gone"
        raise StoreUnavailable(message, hint="send it again")
    return await tell(service, job, 201 if sent.created else 200)


async def _position(desk: Desk, body: RequestBody) -> Position:
    if body.position is not None:
        return body.position.read()
    if not body.address.strip():
        message = "the request has neither an address nor a position"
        raise InvalidValue(message, hint='give `position`: {"lat": …, "lon": …}, or `address`')
    return await find_position(desk.settings.geocoder_url, body.address)
