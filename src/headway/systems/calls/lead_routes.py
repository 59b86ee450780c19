"""/leads: create, find, count, dispatch and cancel leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from fastapi import Body, Path, Query, Response
from fastapi.openapi.models import Example
from pydantic import ConfigDict, Field

from headway.contract.operate import Acted, Verb
from headway.contract.views import GatesQuery, GateState, JobQuery, JobsQuery, JobView, WhyQuery
from headway.core.errors import (
    InvalidState,
    InvalidValue,
    StoreError,
    StoreUnavailable,
    UnknownRecord,
)
from headway.core.gates.hours import intervals, next_opening
from headway.core.gates.spec import GateSpec
from headway.core.state import State
from headway.runtime.records import record
from headway.server.access import Reader, Sender
from headway.server.bodies.base import QueryModel, TenantName, When
from headway.server.caller import Caller
from headway.server.finding import bounded_page, jobs_by_id
from headway.server.paging import PageQuery, check_number_cursor
from headway.server.problems import add_members
from headway.server.replies import answer, extended_model, json_reply, page_model, reply
from headway.server.routing import TheService, router
from headway.server.service import Service
from headway.server.visibility import visible_why
from headway.systems.calls.call_events import cancel_lead
from headway.systems.calls.context import CallsContext, TheContext
from headway.systems.calls.intake import LeadBody, OneOrManyLeads, Taken, take_leads
from headway.systems.calls.lead import (
    CHECK,
    DIAL,
    LANE,
    LEAD,
    Lead,
    LeadStatus,
    Outcome,
    attempts_of,
    is_lead,
    lead_of,
    outcome_of,
    read_args,
    status_of,
)
from headway.systems.jobs import act, system_job
from headway.systems.telephony.phone import Phone

ROUTES = router("system: calls", operations="calls_")
LeadId = Annotated[str, Path(alias="id")]
"""The id of a lead in a path."""
MOST = 20_000
"""Maximum number of leads that one request examines."""

COUNTED = reply(
    "AttemptsByOutcome",
    "Number of attempts by outcome.",
    outcomes=(dict[str, int], "Number of attempts by outcome."),
    under_way=(int, "Number of attempts in progress."),
    leads=(int, "Number of leads examined, among those that the caller sees."),
    complete=(
        bool,
        "Whether these were all leads; if not, limit it to a reseller or a shorter time.",
    ),
)


class CountParams(QueryModel):
    """Which attempts."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True)

    from_: When | None = Field(
        default=None, alias="from", description="Only attempts that started at or after this time."
    )
    to: When | None = Field(
        default=None, description="Only attempts that started before this time."
    )
    reseller: TenantName | None = Field(
        default=None, description="Only attempts for leads of this reseller."
    )


@ROUTES.get("/leads/outcomes", summary="Count attempts by outcome", response_model=COUNTED)
async def outcomes(
    params: Annotated[CountParams, Query()], service: TheService, caller: Reader
) -> Response:
    """Count the attempts of the newest leads, up to 20,000 of them, by outcome."""
    now = await service.now()
    since = 0 if params.from_ is None else params.from_.resolved(now)
    until = now + 1 if params.to is None else params.to.resolved(now)
    tenant = caller.tenant(params.reseller)
    found: Counter[str] = Counter()
    looked, seen, under_way, cursor = 0, 0, 0, None
    while looked < MOST:
        query = JobsQuery(
            kind=LEAD,
            lane=LANE,
            tenant=tenant,
            runs=True,
            newest=True,
            cursor=cursor,
            limit=1_000,
        )
        page = await bounded_page(service.store, query)
        for job in page.rows:
            if not caller.sees(job):
                continue
            seen += 1
            for attempt in attempts_of(job):
                if since <= attempt.started_at < until:
                    under_way += attempt.outcome is None
                    found.update([] if attempt.outcome is None else [str(attempt.outcome)])
        looked += len(page.rows)
        cursor = page.cursor
        if cursor is None:
            break
    return answer(
        {
            "outcomes": dict(found),
            "under_way": under_way,
            "leads": seen,
            "complete": cursor is None,
        }
    )


TAKEN = reply(
    "LeadTaken",
    "The lead that now exists.",
    id=(str, "Id of the lead."),
    status=(LeadStatus, "Status of the lead; BACKLOG for a new one."),
    created=(bool, "Whether this request created it."),
    due_at=(
        int,
        "When the lead is due; if it already existed, this can also be when the one sent would "
        "have been due.",
    ),
)
TAKEN_MANY = reply(
    "LeadsTaken",
    "The leads that now exist.",
    leads=(list[TAKEN], "Leads, in the order of the request."),
)
ONE = extended_model(
    Lead,
    "LeadAndWhy",
    why=(
        str | None,
        "Why the lead is not being called yet, in one sentence; null unless it is waiting.",
    ),
)
GONE = reply(
    "LeadCancelled",
    "The cancelled lead.",
    id=(str, "Id of the lead."),
    status=(LeadStatus, "FINISHED, or PROCESSING while its call is being hung up."),
    outcome=(Outcome | None, "ABORT once the lead is finished."),
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


class LeadsParams(PageQuery):
    """Which leads; an omitted filter matches any lead."""

    status: LeadStatus | None = Field(default=None, description="Only leads with this status.")
    reseller: TenantName | None = Field(default=None, description="Only leads of this reseller.")
    phone: Phone | None = Field(
        default=None, description="Only leads with this phone; requires `reseller`."
    )
    outcome: Outcome | None = Field(
        default=None, description="Only finished leads with this outcome."
    )
    newest: bool = Field(default=False, description="Newest leads first.")


class HangupParams(QueryModel):
    """How a lead is cancelled."""

    hangup: bool = Field(default=False, description="Also hang up a call in progress.")


@ROUTES.post(
    "/leads",
    operation_id="calls_take_leads",
    summary="Create one lead, or up to 10,000",
    status_code=201,
    response_model=TAKEN,
    response_description="The lead was created.",
    responses={
        200: {
            "model": TAKEN | TAKEN_MANY,
            "description": "The lead already existed, or the body was a list.",
        }
    },
)
async def take(
    body: Annotated[OneOrManyLeads, Body(openapi_examples=_EXAMPLES)],
    service: TheService,
    context: TheContext,
    caller: Sender,
) -> Response:
    """Create leads; when this returns, they are stored.

    A repeat with the same `key` creates no second lead until seven days after the end of the first;
    with another phone, zone, template or payload it is a conflict (409). A list is stored in steps
    of 1,000, each completely or not at all; a problem reports how many leads the previous steps
    `stored`.
    """
    many = not isinstance(body, LeadBody)
    taken = await take_leads(service, caller, context, body if many else [body])
    known = await _row_state(service, context, [one.id for one in taken if not one.created])
    views = [_view(one, known.get(one.id)) for one in taken]
    if many:
        return json_reply({"leads": views})
    return json_reply(views[0], 201 if taken[0].created else 200)


async def _row_state(
    service: Service, context: CallsContext, leads: Sequence[str]
) -> Mapping[str, JobView]:
    """Return the jobs of leads by id; with a source table, leads may have no job yet.

    Raises:
        StoreError: the store is unavailable, and there is no source table.
    """
    found: dict[str, JobView] = {}
    try:
        async for job in jobs_by_id(service.store, leads):
            found[job.id] = job
    except StoreError:
        if context.table is None:
            raise
    return found


@ROUTES.get("/leads", summary="List leads", response_model=page_model(Lead))
async def leads(
    params: Annotated[LeadsParams, Query()], service: TheService, caller: Reader
) -> Response:
    """List the leads that the caller sees, oldest first.

    A page may be short or even empty and still have a cursor, because only a bounded number of
    leads is examined.

    Raises:
        InvalidValue: `phone` is given without `reseller`.
    """
    reseller = caller.tenant(params.reseller)
    if params.phone is not None and reseller is None:
        message = "`phone` requires `reseller`"
        raise InvalidValue(message, hint="add ?reseller=")
    status = params.status
    if params.outcome is not None:
        status = LeadStatus.FINISHED if status is None else status
    query = JobsQuery(
        kind=LEAD,
        lane=LANE,
        tenant=reseller,
        subject=params.phone,
        states=() if status is None else _STATES[status],
        runs=True,
        newest=params.newest,
        cursor=check_number_cursor(params.cursor),
        limit=params.limit,
    )
    page = await bounded_page(service.store, query, is_lead)
    rows = [
        lead_of(job)
        for job in page.rows
        if caller.sees(job)
        and (status is None or status_of(job) is status)
        and (params.outcome is None or outcome_of(job) is params.outcome)
    ]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.get("/leads/{id}", summary="Get a lead", response_model=ONE)
async def lead(lead: LeadId, service: TheService, caller: Reader) -> Response:
    """Return a lead with its attempts, and if it is waiting, why."""
    job = await visible_lead(service, caller, lead)
    why = None
    if status_of(job) is LeadStatus.BACKLOG:
        why = (await visible_why(service, caller, job.id))[1].sentence
    return answer({**record(lead_of(job)), "why": why})


@ROUTES.delete(
    "/leads/{id}",
    operation_id="calls_cancel_lead",
    summary="Cancel a lead",
    response_model=GONE,
    responses={202: {"model": GONE, "description": "Its call is being hung up."}},
)
async def delete(
    lead: LeadId,
    params: Annotated[HangupParams, Query()],
    service: TheService,
    context: TheContext,
    caller: Sender,
) -> Response:
    """Cancel a lead. A waiting lead is FINISHED at once, with the outcome ABORT.

    A lead that is being called is not cancelled (409), unless `hangup=true`: then its call is hung
    up, and the lead is FINISHED when the provider reports the end.

    Raises:
        InvalidState: it is being called, or is finished.
    """
    job = await visible_lead(service, caller, lead)
    status = status_of(job)
    if status is LeadStatus.FINISHED or (status is LeadStatus.PROCESSING and not params.hangup):
        message = f"the lead is {status}"
        hint = "add ?hangup=true to end its call" if status is LeadStatus.PROCESSING else ""
        raise InvalidState(message, hint=hint)
    now = await cancel_lead(context, job, caller.name, hangup=params.hangup)
    ended = status_of(now) is LeadStatus.FINISHED
    shown = {"id": now.id, "status": status_of(now), "outcome": outcome_of(now)}
    return answer(shown, 200 if ended else 202)


async def visible_lead(service: Service, caller: Caller, lead: str) -> JobView:
    """Return a lead's job with its runs.

    Raises:
        UnknownRecord: there is none that the caller sees.
    """
    hint = "GET /leads lists them; finished ones are kept for a while"
    return await system_job(service.store, caller, is_lead, lead, noun="lead", hint=hint)


def _view(taken: Taken, job: JobView | None) -> dict[str, object]:
    return {
        "id": taken.id,
        "status": LeadStatus.BACKLOG if job is None else status_of(job),
        "created": taken.created,
        "due_at": taken.due_at if job is None else job.due_at,
    }


SOON_MS = 1_000
"""Expected time until a lead with open gates is dispatched."""
AHEAD_MS = 14 * 86_400_000
"""How far ahead to look for the next opening of calling hours."""

QUEUED = reply(
    "LeadQueued",
    "A lead that is due now.",
    status=(Literal["queued"], "Always `queued`."),
    expected_dispatch_within_ms=(
        int | None,
        "Expected time until the call, from what is known of its gates; null if that is unknown.",
    ),
)


@ROUTES.post(
    "/leads/{id}/dispatch-now",
    summary="Call a lead as soon as possible",
    response_model=QUEUED,
)
async def dispatch_now(
    lead: LeadId, service: TheService, context: TheContext, caller: Sender
) -> Response:
    """Make a lead due now; calling hours, rates and lines still apply.

    409: the lead is being called. 400: the lead is finished.

    Raises:
        InvalidState: it is being called, or is finished.
    """
    job = await visible_lead(service, caller, lead)
    if job.state is not State.RUNNING or status_of(job) is not LeadStatus.BACKLOG:
        (acted,) = await act(service.store, Verb.RUN_NOW, job.id, author=caller.name)
        if acted.answer is not Acted.DONE:
            status = status_of(await visible_lead(service, caller, lead))
            error = InvalidState(f"the lead is {status}", hint="GET /leads/{id} shows its attempts")
            if status is LeadStatus.FINISHED:
                add_members(error, status=400)
            raise error
    within = await _expected(service, context, job.id)
    return answer({"status": "queued", "expected_dispatch_within_ms": within})


async def _expected(service: Service, context: CallsContext, lead: str) -> int | None:
    """Return in how many ms the lead is called at the earliest; None if that is unknown."""
    job = await service.store.read(JobQuery(id=lead))
    why = await service.store.read(WhyQuery(id=lead))
    if job is None or why is None:
        return SOON_MS
    if why.never_fits:
        return None
    opens = [one.opens_at for one in why.closed]
    if job.stage == CHECK:
        # The checks come first, but the gates of its dial must open as well.
        try:
            opens += await _dial_opens(service, context, job, why.now)
        except UnknownRecord:
            # The template no longer exists: the lead ends at its checks.
            return SOON_MS
        except StoreUnavailable:
            return None
    known = [at for at in opens if at is not None]
    if len(known) < len(opens):
        return None
    return max([0, *(at - why.now for at in known)]) + SOON_MS


async def _dial_opens(
    service: Service, context: CallsContext, job: JobView, now: int
) -> Iterable[int | None]:
    """Return when each closed gate of a lead's dial opens, ms UTC; None if that is unknown.

    Raises:
        UnknownRecord: its template no longer exists.
    """
    args = read_args(job.args)
    contents = await context.catalogue.read({args.template})
    gates = context.dial_gates(contents, contents.template(args.template), job.tenant)
    specs = {one.name: one for one in gates}
    uses = context.kind.uses(DIAL, job.lane, job.tenant, job.args, gates)
    names = tuple(one.name for one in uses)
    states = {one.name: one for one in (await service.store.read(GatesQuery(names=names))).rows}
    opens = [
        _opens_at(states[one.name], specs[one.template], args.tz, now)
        for one in uses
        if one.name in states
    ]
    return [at for at in opens if at != now]


def _opens_at(state: GateState, spec: GateSpec, tz: str, now: int) -> int | None:
    """Return when a gate opens; now if it is open."""
    if state.closed_until is None and spec.hours is not None:
        # The store knows the hours of a time zone only once a lead has waited at them.
        return next_opening(intervals(spec.hours, tz, now, now + AHEAD_MS), now)
    return now if state.open else state.opens_at
