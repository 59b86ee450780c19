"""GET /service-requests and /service-requests/{id}."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field

from headway.contract.views import JobsQuery, WhyQuery
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.asking import PageAsked, numbered
from headway.server.for_callers.bounded_page import bounded_page
from headway.server.replies.answer import answer, told
from headway.server.replies.schema import and_more, page_model
from headway.server.routes.router import TheService, router
from headway.systems.field_service.names import OFFER
from headway.systems.field_service.routes.telling import find_request
from headway.systems.field_service.standing import STATES, Status, status_of
from headway.systems.field_service.told import ServiceRequest, service_request

ROUTES = router("system: field_service")
Reader = Annotated[Caller, needs(Permission.READ)]

WITH_WHY = and_more(
    ServiceRequest, "ServiceRequestWithWhy", why=(str, "Why it stands where it stands.")
)
EXHAUSTED = "exhausted"
NOBODY_LEFT = "pending: nobody near, on duty and with these skills is left to ask"


class RequestsAsked(PageAsked):
    """Which requests."""

    status: Status | None = Field(default=None, description="Only of this status.")
    phone: str | None = Field(default=None, description="Only of the customer with this number.")


@ROUTES.get(
    "/service-requests",
    operation_id="field_requests",
    summary="Service requests",
    response_model=page_model(ServiceRequest),
)
async def requests(
    asked: Annotated[RequestsAsked, Query()], service: TheService, caller: Reader
) -> Response:
    """Service requests with whom they were offered to, the newest first.

    A page may be short, or even empty, and yet have a cursor.
    """
    query = JobsQuery(
        kind=OFFER,
        subject=asked.phone,
        tenant="",
        states=() if asked.status is None else STATES[asked.status],
        runs=True,
        trail=True,
        newest=True,
        cursor=numbered(asked.cursor),
        limit=asked.limit,
    )
    page = await bounded_page(service.store, query)
    now = await service.now()
    rows = [
        service_request(job, now)
        for job in page.rows
        if caller.sees(job) and asked.status in {None, status_of(job)}
    ]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.get(
    "/service-requests/{id}",
    operation_id="field_request_of",
    summary="One service request",
    response_model=WITH_WHY,
)
async def request(id: str, service: TheService, caller: Reader) -> Response:  # noqa: A002  (of the path)
    """A request: who was asked, what they said, who is asked now, and the time left."""
    job = await find_request(service, caller, id)
    why = await service.store.read(WhyQuery(id=job.id))
    now = why.now if why is not None else await service.now()
    fields: Any = told(service_request(job, now))
    if status_of(job) is Status.PENDING and job.reason == EXHAUSTED:
        return answer({**fields, "why": NOBODY_LEFT})
    return answer({**fields, "why": why.sentence if why is not None else ""})
