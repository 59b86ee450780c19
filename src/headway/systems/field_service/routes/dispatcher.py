"""A dispatcher's moves: assign, redispatch, and DELETE to withdraw."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response

from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.for_callers.sending import send_jobs
from headway.server.routes.router import TheService, router
from headway.systems.field_service.bodies import AssignBody
from headway.systems.field_service.desk import TheDesk
from headway.systems.field_service.dispatching import Dispatcher
from headway.systems.field_service.intake import look_at
from headway.systems.field_service.routes.telling import REQUEST, find_request, tell
from headway.systems.field_service.technicians.book import find_technician

ROUTES = router("system: field_service")
Mover = Annotated[Caller, needs(Permission.ACT)]


@ROUTES.post(
    "/service-requests/{id}/assign",
    operation_id="field_assign",
    summary="Give it to a technician",
    response_model=REQUEST,
)
async def assign(
    id: str,  # noqa: A002  (of the path)
    body: AssignBody,
    service: TheService,
    desk: TheDesk,
    caller: Mover,
) -> Response:
    """Ends what is open, and gives the request to a technician without asking him.

    He is told by message. 409: he is busy; with `wait` the request waits until he is free.
    """
    job = await find_request(service, caller, id)
    async with desk.directory.read() as session:
        technician = await find_technician(session, body.technician)
    mover = Dispatcher(desk=desk, author=caller.name)
    by = body.by or caller.name
    return await tell(service, await mover.assign(job, technician.id, by=by, wait=body.wait))


@ROUTES.post(
    "/service-requests/{id}/redispatch",
    operation_id="field_redispatch",
    summary="Offer it again",
    response_model=REQUEST,
)
async def redispatch(
    id: str,  # noqa: A002  (of the path)
    service: TheService,
    desk: TheDesk,
    caller: Mover,
) -> Response:
    """Offers a pending or cancelled request again, to those who are near and on duty now."""
    job = await find_request(service, caller, id)
    job = await Dispatcher(desk=desk, author=caller.name).redispatch(job)
    # As at its intake: all of them may have another request.
    await send_jobs(service, [look_at(desk, job.id, "dispatched", job.life)])
    return await tell(service, job)


@ROUTES.delete(
    "/service-requests/{id}",
    operation_id="field_withdraw",
    summary="Withdraw it",
    response_model=REQUEST,
)
async def withdraw(
    id: str,  # noqa: A002  (of the path)
    service: TheService,
    desk: TheDesk,
    caller: Mover,
) -> Response:
    """Withdraws a request: calls are hung up, and whoever answers later is told so.

    409: it is completed.
    """
    job = await find_request(service, caller, id)
    return await tell(service, await Dispatcher(desk=desk, author=caller.name).withdraw(job))
