"""/service-requests: creating, reading and listing requests, and technicians' answers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field

from headway.contract.views import JobQuery, JobsQuery, JobView
from headway.core.errors import InvalidState, InvalidValue, StoreUnavailable
from headway.core.job import derived_id
from headway.core.naming import MAX_NAME
from headway.server.access import Reader, Sender, needs
from headway.server.caller import Caller, Permission
from headway.server.finding import bounded_page
from headway.server.paging import PageQuery, check_number_cursor
from headway.server.replies import answer, extended_model, page_model, plain_value
from headway.server.routing import TheService, router
from headway.server.sending import send_jobs
from headway.server.service import Service
from headway.server.visibility import visible_why
from headway.systems.field_service.answering import AnswerEffect
from headway.systems.field_service.answering import answer as say
from headway.systems.field_service.bodies import AnswerBody, RequestBody
from headway.systems.field_service.context import FieldContext, TheContext
from headway.systems.field_service.dispatching import RequestMoves
from headway.systems.field_service.intake import candidates_for, find_position, jobs_for, review_now
from headway.systems.field_service.passing_over import ref_for
from headway.systems.field_service.request import (
    OFFER,
    OFFERS,
    STATES,
    Position,
    Request,
    Status,
    acceptor,
    is_request,
    status_of,
)
from headway.systems.field_service.technicians import TECHNICIANS
from headway.systems.field_service.views import (
    REQUEST,
    RequestId,
    ServiceRequest,
    find_request,
    respond_with,
    service_request,
)

ROUTES = router("system: field_service", operations="field_")


@ROUTES.post(
    "/service-requests",
    operation_id="field_request",
    summary="Request a technician",
    status_code=201,
    response_model=REQUEST,
    response_description="The request is being dispatched, or is pending if no technician is near.",
    responses={
        200: {"model": REQUEST, "description": "The request already existed, under the same key."}
    },
)
async def intake(
    body: RequestBody,
    service: TheService,
    context: TheContext,
    caller: Sender,
) -> Response:
    """Store a request, and reply at once, before the first call.

    Technicians who are on duty, within the radius and have all the skills are asked one after
    another, nearest first. If there are none, the request is pending at once, and dispatchers are
    alerted. An address without a position needs a geocoder (422 without one, 503 if it is
    unavailable).

    Raises:
        StoreUnavailable: the request was stored, but cannot be read.
    """
    caller.check_tenant("")
    caller.check_lane(OFFERS)
    request = Request(
        customer=body.customer.read(),
        position=await _position(context, body),
        skills=tuple(body.skills),
        urgency=body.urgency,
        address=body.address,
        description=body.description,
    )
    jobs = jobs_for(context, request, await candidates_for(context, request), key=body.key)
    sent = (await send_jobs(service, jobs, caller=caller))[0]
    job = await service.store.read(JobQuery(id=sent.id))
    if job is None:
        message = "the request was stored, but cannot be read"
        raise StoreUnavailable(message, hint="send it again")
    return await respond_with(service, job, 201 if sent.created else 200)


async def _position(context: FieldContext, body: RequestBody) -> Position:
    if body.position is not None:
        return body.position.read()
    if not body.address.strip():
        message = "the request has neither an address nor a position"
        raise InvalidValue(message, hint='pass `position`: {"lat": …, "lon": …}, or `address`')
    return await find_position(context.settings.geocoder_url, body.address)


WITH_WHY = extended_model(
    ServiceRequest, "ServiceRequestWithWhy", why=(str, "Why the request is in its current state.")
)
EXHAUSTED = "exhausted"
NONE_LEFT = "pending: no technician near, on duty and with these skills is left to ask"


class RequestsParams(PageQuery):
    """Filters for requests."""

    status: Status | None = Field(default=None, description="Only requests with this status.")
    phone: str | None = Field(
        default=None, description="Only requests of the customer with this number."
    )


@ROUTES.get(
    "/service-requests", summary="List service requests", response_model=page_model(ServiceRequest)
)
async def requests(
    params: Annotated[RequestsParams, Query()], service: TheService, caller: Reader
) -> Response:
    """List service requests with the technicians they were offered to, newest first.

    A page may be short or even empty and still have a cursor.
    """
    query = JobsQuery(
        kind=OFFER,
        lane=OFFERS,
        subject=params.phone,
        tenant="",
        states=() if params.status is None else STATES[params.status],
        runs=True,
        trail=True,
        newest=True,
        cursor=check_number_cursor(params.cursor),
        limit=params.limit,
    )
    page = await bounded_page(service.store, query, is_request)
    now = await service.now()
    rows = [
        service_request(job, now)
        for job in page.rows
        if caller.sees(job) and params.status in {None, status_of(job)}
    ]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.get(
    "/service-requests/{id}",
    operation_id="field_request_of",
    summary="Get a service request",
    response_model=WITH_WHY,
)
async def one(request: RequestId, service: TheService, caller: Reader) -> Response:
    """Return a request: who was asked, their answers, who is being asked, and the time left."""
    found = await find_request(service, caller, request)
    job, why = await visible_why(service, caller, found.id)
    fields: Any = plain_value(service_request(job, why.now))
    if status_of(job) is Status.PENDING and job.reason == EXHAUSTED:
        return answer({**fields, "why": NONE_LEFT})
    return answer({**fields, "why": why.sentence})


Signaller = Annotated[Caller, needs(Permission.SIGNAL)]
BY_API = "by API"

_TOO_LATE = {
    AnswerEffect.TAKEN: "another technician has it",
    AnswerEffect.OVER: "the offer is over",
    AnswerEffect.WITHDRAWN: "the request was withdrawn",
    AnswerEffect.DECLINED: "it was declined before",
}


@ROUTES.post("/service-requests/{id}/accept", summary="Accept an offer", response_model=REQUEST)
async def accept(
    request: RequestId,
    body: AnswerBody,
    service: TheService,
    context: TheContext,
    caller: Signaller,
) -> Response:
    """Accept for the technician being asked; 409 for one who is too late, or was not asked."""
    job = await _answer(service, context, caller, request, body, accepts=True)
    return await respond_with(service, job)


@ROUTES.post("/service-requests/{id}/decline", summary="Decline an offer", response_model=REQUEST)
async def decline(
    request: RequestId,
    body: AnswerBody,
    service: TheService,
    context: TheContext,
    caller: Signaller,
) -> Response:
    """Decline for the technician being asked; the next one is asked at once."""
    job = await _answer(service, context, caller, request, body, accepts=False)
    await send_jobs(service, [review_now(context, job.id, "declined", body.technician, job.life)])
    return await respond_with(service, job)


@ROUTES.post(
    "/service-requests/{id}/complete", summary="Complete a request", response_model=REQUEST
)
async def complete(
    request: RequestId, service: TheService, context: TheContext, caller: Signaller
) -> Response:
    """Complete an assigned request, which frees its technician; repeating this is harmless.

    409: no technician has the request.
    """
    job = await find_request(service, caller, request)
    return await respond_with(
        service, await RequestMoves(context=context, author=caller.name).complete(job)
    )


def _api_event(event: str) -> str:
    """Return the id of the signal for a caller's event, which cannot be that of another source."""
    marked = f"api:{event}"
    return marked if len(marked) <= MAX_NAME else derived_id("api", event)


async def _answer(
    service: Service,
    context: FieldContext,
    caller: Caller,
    request: str,
    body: AnswerBody,
    *,
    accepts: bool,
) -> JobView:
    """Apply a technician's answer, and return the request's job as it is then.

    Raises:
        InvalidState: the technician was not asked, or the answer came too late.
    """
    job = await find_request(service, caller, request)
    async with context.directory.read() as session:
        technician = await TECHNICIANS.find(session, body.technician)
    ref = ref_for(job, technician.id)
    if ref is None:
        message = f"{technician.id} was not asked about this request"
        raise InvalidState(message, hint="only the technician being asked can answer")
    word = "accept" if accepts else "decline"
    answered = await say(
        service.store,
        context.tally,
        ref=ref,
        technician=technician.id,
        accepts=accepts,
        event=_api_event(body.event) if body.event else f"{word}:{ref}",
        by=BY_API,
    )
    if answered.verdict is (AnswerEffect.ACCEPTED if accepts else AnswerEffect.DECLINED):
        return answered.request
    if answered.verdict is AnswerEffect.ACCEPTED:
        message = f"{acceptor(answered.request)} has accepted it"
        raise InvalidState(message, hint="a dispatcher can assign it to another technician")
    message = f"too late: {_TOO_LATE[answered.verdict]}"
    raise InvalidState(message, hint="GET /service-requests/{id} shows its current state")
