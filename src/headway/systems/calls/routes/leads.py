"""/leads: taking leads in, finding them, calling them off."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query, Response
from fastapi.openapi.models import Example
from pydantic import Field

from headway.contract.views import JobQuery, JobsQuery, JobView
from headway.core.check import is_job_id
from headway.core.errors import InvalidState, InvalidValue, StoreError, UnknownRecord
from headway.core.state import State
from headway.runtime.records import record
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.asking import PageAsked, numbered
from headway.server.bodies.body import Asked
from headway.server.bodies.words import TenantName
from headway.server.for_callers.bounded_page import bounded_page
from headway.server.for_callers.sight import why_seen
from headway.server.replies.answer import answer, plain
from headway.server.replies.schema import and_more, page_model, reply
from headway.server.routes.router import TheService, router
from headway.server.service import Service
from headway.systems.calls.bodies import LeadBody, OneOrManyLeads, Phone
from headway.systems.calls.calling_off import call_off
from headway.systems.calls.desk import LEAD, Desk, TheDesk
from headway.systems.calls.intake import Taken, take_leads
from headway.systems.calls.lead import Lead, LeadStatus, lead_of, outcome_of, status_of
from headway.systems.calls.outcome import Outcome

ROUTES = router("system: calls")

TAKEN = reply(
    "LeadTaken",
    "Which lead exists now.",
    id=(str, "Of the lead."),
    status=(LeadStatus, "Where it stands; BACKLOG for a new one."),
    created=(bool, "Whether this call made it."),
    due_at=(int, "When it is due; of a lead that was there, when this one would have been."),
)
TAKEN_MANY = reply("LeadsTaken", "For each, in this order.", leads=(list[TAKEN], "The leads."))
ONE = and_more(
    Lead,
    "LeadAndWhy",
    why=(str | None, "Why it is not called yet, in one sentence; null unless it waits."),
)
GONE = reply(
    "LeadCalledOff",
    "What becomes of the lead.",
    id=(str, "Of the lead."),
    status=(LeadStatus, "FINISHED; or PROCESSING while its call is being hung up."),
    outcome=(Outcome | None, "ABORT once it is finished."),
)

_STATES = {
    LeadStatus.BACKLOG: (State.SCHEDULED, State.WAITING, State.PARKED, State.RUNNING),
    LeadStatus.PROCESSING: (State.RUNNING, State.AWAITING),
    LeadStatus.FINISHED: (State.SUCCEEDED, State.DEAD, State.CANCELLED),
}
_EXAMPLES: dict[str, Example] = {
    "one": {
        "summary": "One lead",
        "value": {
            "phone": "+14155550100",
            "tz": "America/Los_Angeles",
            "reseller": "acme",
            "key": "order-17",
        },
    },
}


class LeadsAsked(PageAsked):
    """Which leads; what is left out stands for any."""

    status: LeadStatus | None = Field(default=None, description="Only these.")
    reseller: TenantName | None = Field(default=None, description="Only this one's.")
    phone: Phone | None = Field(default=None, description="Only to this phone; needs `reseller`.")
    outcome: Outcome | None = Field(default=None, description="Only finished ones with this.")
    newest: bool = Field(default=False, description="Newest intake first.")


class HangupAsked(Asked):
    """How a lead is called off."""

    hangup: bool = Field(default=False, description="Also ends a call that goes on.")


@ROUTES.post(
    "/leads",
    operation_id="calls_take_leads",
    summary="Take in one lead, or up to 10,000",
    status_code=201,
    response_model=TAKEN,
    response_description="The lead was taken in.",
    responses={200: {"model": TAKEN | TAKEN_MANY, "description": "It was there; or: a list."}},
)
async def take(
    body: Annotated[OneOrManyLeads, Body(openapi_examples=_EXAMPLES)],
    service: TheService,
    desk: TheDesk,
    caller: Annotated[Caller, needs(Permission.SEND)],
) -> Response:
    """Takes leads in; when this returns, they are stored.

    Sent again with the same `key` a lead is still one, until seven days after its end; with
    another phone, zone, template or payload that is a conflict (409). A list is stored in steps of
    1,000, each whole or not at all; a problem says how many were `stored` by the steps before.
    """
    if isinstance(body, LeadBody):
        (taken,) = await take_leads(service, caller, desk, [body])
        said = _told(taken)
        if not taken.created:
            view = await _standing(service, desk, taken.id)
            said |= {} if view is None else {"status": status_of(view), "due_at": view.due_at}
        return plain(said, 201 if taken.created else 200)
    return plain({"leads": [_told(one) for one in await take_leads(service, caller, desk, body)]})


async def _standing(service: Service, desk: Desk, lead: str) -> JobView | None:
    """Where a lead stands; None where only your own table can tell that there is one.

    Raises:
        StoreError: the store is away, and is the truth.
    """
    try:
        return await service.store.read(JobQuery(id=lead))
    except StoreError:
        if desk.table is None:
            raise
        return None


@ROUTES.get(
    "/leads", operation_id="calls_leads", summary="List leads", response_model=page_model(Lead)
)
async def listing(
    asked: Annotated[LeadsAsked, Query()],
    service: TheService,
    caller: Annotated[Caller, needs(Permission.READ)],
) -> Response:
    """Lists the leads that the caller sees, oldest intake first.

    A page may be short, or even empty, and yet have a cursor: a bounded number of leads was looked
    at.

    Raises:
        InvalidValue: a phone is looked for, and no reseller is named.
    """
    reseller = caller.tenant(asked.reseller)
    if asked.phone is not None and reseller is None:
        message = "a phone is looked for, and no reseller is named"
        raise InvalidValue(message, hint="add reseller=")
    status = asked.status
    if asked.outcome is not None:
        status = LeadStatus.FINISHED if status is None else status
    query = JobsQuery(
        kind=LEAD,
        tenant=reseller,
        subject=asked.phone,
        states=() if status is None else _STATES[status],
        runs=True,
        newest=asked.newest,
        cursor=numbered(asked.cursor),
        limit=asked.limit,
    )
    page = await bounded_page(service.store, query)
    rows = [
        lead_of(job)
        for job in page.rows
        if job.kind == LEAD
        and caller.sees(job)
        and (status is None or status_of(job) is status)
        and (asked.outcome is None or outcome_of(job) is asked.outcome)
    ]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.get("/leads/{id}", operation_id="calls_lead", summary="One lead", response_model=ONE)
async def one(
    id: str,  # noqa: A002  (the path's word)
    service: TheService,
    caller: Annotated[Caller, needs(Permission.READ)],
) -> Response:
    """A lead with its attempts; of one that waits, why."""
    job = await lead_seen(service, caller, id)
    why = None
    if status_of(job) is LeadStatus.BACKLOG:
        why = (await why_seen(service, caller, job.id))[1].sentence
    return answer({**record(lead_of(job)), "why": why})


@ROUTES.delete(
    "/leads/{id}",
    operation_id="calls_call_off",
    summary="Call a lead off",
    response_model=GONE,
    responses={202: {"model": GONE, "description": "Its call is being hung up."}},
)
async def delete(
    id: str,  # noqa: A002  (the path's word)
    asked: Annotated[HangupAsked, Query()],
    service: TheService,
    desk: TheDesk,
    caller: Annotated[Caller, needs(Permission.SEND)],
) -> Response:
    """Calls a lead off: one that waits is FINISHED at once, with the outcome ABORT.

    One that is being called is left alone (409), unless `hangup=true`: then its call is hung up,
    and the lead is FINISHED when the provider says so.

    Raises:
        InvalidState: it is being called, or is finished.
    """
    job = await lead_seen(service, caller, id)
    status = status_of(job)
    if status is LeadStatus.FINISHED or (status is LeadStatus.PROCESSING and not asked.hangup):
        message = f"the lead is {status}"
        hint = "add ?hangup=true to end its call" if status is LeadStatus.PROCESSING else ""
        raise InvalidState(message, hint=hint)
    now = await call_off(desk, job, caller.name)
    ended = status_of(now) is LeadStatus.FINISHED
    said = {"id": now.id, "status": status_of(now), "outcome": outcome_of(now)}
    return answer(said, 200 if ended else 202)


async def lead_seen(service: Service, caller: Caller, id: str) -> JobView:  # noqa: A002  (the path's word)
    """A lead's job with its runs.

    Raises:
        UnknownRecord: there is none that the caller sees.
    """
    found = await service.store.read(JobQuery(id=id)) if is_job_id(id) else None
    if found is None or found.kind != LEAD or not caller.sees(found):
        message = f"there is no lead {id[:64]!r}"
        raise UnknownRecord(message, hint="GET /leads lists them; finished ones are kept a time")
    return found


def _told(taken: Taken) -> dict[str, object]:
    return {
        "id": taken.id,
        "status": LeadStatus.BACKLOG,
        "created": taken.created,
        "due_at": taken.due_at,
    }
