"""POST /service-requests/{id}/accept, /decline and /complete: a technician's own words."""

from __future__ import annotations

from typing import Annotated, NoReturn

from fastapi import Response

from headway.core.errors import InvalidState
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.for_callers.sending import send_jobs
from headway.server.routes.router import TheService, router
from headway.server.service import Service
from headway.systems.field_service.answering import Answered, Verdict
from headway.systems.field_service.answering import answer as say
from headway.systems.field_service.bodies import AnswerBody
from headway.systems.field_service.desk import Desk, TheDesk
from headway.systems.field_service.dispatching import Dispatcher
from headway.systems.field_service.intake import look_at
from headway.systems.field_service.offers_of import ref_for
from headway.systems.field_service.routes.telling import REQUEST, find_request, tell
from headway.systems.field_service.standing import acceptor
from headway.systems.field_service.technicians.book import find_technician

ROUTES = router("system: field_service")
Teller = Annotated[Caller, needs(Permission.SIGNAL)]
BY_API = "by API"

_TOO_LATE = {
    Verdict.TAKEN: "another technician has it",
    Verdict.OVER: "the offer is over",
    Verdict.WITHDRAWN: "the request was withdrawn",
    Verdict.DECLINED: "it was declined before",
}


@ROUTES.post(
    "/service-requests/{id}/accept",
    operation_id="field_accept",
    summary="A technician accepts",
    response_model=REQUEST,
)
async def accept(
    id: str,  # noqa: A002  (of the path)
    body: AnswerBody,
    service: TheService,
    desk: TheDesk,
    caller: Teller,
) -> Response:
    """The technician who is asked takes it; 409 tells one who comes too late, or was not asked."""
    answered = await _answer(service, desk, caller, id, body, accepts=True)
    if answered.verdict is not Verdict.ACCEPTED:
        _refuse(answered)
    return await tell(service, answered.request)


@ROUTES.post(
    "/service-requests/{id}/decline",
    operation_id="field_decline",
    summary="A technician declines",
    response_model=REQUEST,
)
async def decline(
    id: str,  # noqa: A002  (of the path)
    body: AnswerBody,
    service: TheService,
    desk: TheDesk,
    caller: Teller,
) -> Response:
    """The technician who is asked does not take it; the next one is asked at once."""
    answered = await _answer(service, desk, caller, id, body, accepts=False)
    if answered.verdict is not Verdict.DECLINED:
        _refuse(answered)
    job = answered.request
    await send_jobs(service, [look_at(desk, job.id, "declined", body.technician, job.life)])
    return await tell(service, job)


@ROUTES.post(
    "/service-requests/{id}/complete",
    operation_id="field_complete",
    summary="The work is done",
    response_model=REQUEST,
)
async def complete(
    id: str,  # noqa: A002  (of the path)
    service: TheService,
    desk: TheDesk,
    caller: Teller,
) -> Response:
    """The assigned request is completed, and its technician free for the next; again is harmless.

    409: nobody has it.
    """
    job = await find_request(service, caller, id)
    return await tell(service, await Dispatcher(desk=desk, author=caller.name).complete(job))


async def _answer(
    service: Service, desk: Desk, caller: Caller, request: str, body: AnswerBody, *, accepts: bool
) -> Answered:
    job = await find_request(service, caller, request)
    async with desk.directory.read() as session:
        technician = await find_technician(session, body.technician)
    ref = ref_for(job, technician.id)
    if ref is None:
        message = f"{technician.id} was not asked about this request"
        raise InvalidState(message, hint="only whoever is asked can answer")
    word = "accept" if accepts else "decline"
    return await say(
        service.store,
        desk.tally,
        ref=ref,
        technician=technician.id,
        accepts=accepts,
        event=f"api:{body.event}" if body.event else f"{word}:{ref}",
        by=BY_API,
    )


def _refuse(answered: Answered) -> NoReturn:
    """Tells an answer that came too late.

    Raises:
        InvalidState: always.
    """
    if answered.verdict is Verdict.ACCEPTED:
        message = f"{acceptor(answered.request)} has accepted it"
        raise InvalidState(message, hint="a dispatcher can assign it to somebody else")
    message = f"too late: {_TOO_LATE[answered.verdict]}"
    raise InvalidState(message, hint="GET /service-requests/{id} shows how it stands")
