"""/v1/jobs and /v1/flows: creating and finding jobs, and why a job is not running."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query, Response
from fastapi.openapi.models import Example
from pydantic import Field

from headway.contract.views import FlowsQuery, JobsQuery, JobView
from headway.core.check import is_job_id
from headway.core.errors import InvalidValue
from headway.core.state import State
from headway.runtime.records import record
from headway.server.access import Reader, Sender
from headway.server.bodies.base import Name, QueryModel, TenantName, When
from headway.server.bodies.jobs import FINISHED_SINCE, JobBody, OneOrMany
from headway.server.finding import bounded_page, ended_since, underway_jobs
from headway.server.paging import Cursor, PageQuery, RepeatKey, check_number_cursor
from headway.server.problems import named_by_body
from headway.server.replies import FLOWS as FLOWS_PAGE
from headway.server.replies import JOBS, MADE, MADE_MANY, WHY, answer, json_reply, reply_model
from headway.server.routing import TheService, router
from headway.server.sending import check_repeated_list, make_jobs, send_jobs
from headway.server.visibility import visible_job, visible_why

ROUTES = router("jobs", prefix="/v1/jobs")
FLOWS = router("jobs", prefix="/v1/flows")

_EXAMPLES: dict[str, Example] = {
    "one": {
        "summary": "One job",
        "value": {
            "kind": "send_mail",
            "args": {"to": "ada@example.org"},
            "lane": "mail",
            "key": "order-17",
        },
    },
    "gated": {
        "summary": "A job with gates",
        "value": {
            "kind": "call",
            "lane": "calls",
            "args": {"phone": "+14155550100"},
            "due": "20m",
            "gates": ["numbers", {"gate": "customer:{phone}", "amount": 1}],
            "retry": {"attempts": 3, "base": "1m"},
        },
    },
    "many": {"summary": "A list", "value": [{"kind": "noop"}, {"kind": "noop", "priority": 1}]},
}


class JobsParams(PageQuery):
    """Which jobs; an omitted filter matches any job."""

    id: list[Name] | None = Field(
        default=None,
        max_length=100,
        description="Only jobs with these ids, in this order; repeatable. Among the other filters "
        "only `tenant` applies.",
    )
    worker: Name | None = Field(
        default=None,
        description="Only jobs that this worker runs or awaits, by start, as one page, out of its "
        "first 1,000. Among the other filters only `tenant` applies.",
    )
    lane: Name | None = Field(default=None, description="Only jobs in this lane.")
    tenant: TenantName | None = Field(default=None, description="Only jobs of this tenant.")
    kind: Name | None = Field(default=None, description="Only jobs of this kind.")
    state: list[State] = Field(default=[], description="Only jobs in this state; repeatable.")
    key: Name | None = Field(
        default=None,
        description="Only the job with this key, of `tenant`, or without a tenant if that is "
        "omitted.",
    )
    subject: Name | None = Field(
        default=None,
        description="Only jobs with this subject, of `tenant`, or without a tenant if that is "
        "omitted.",
    )
    underway: bool = Field(
        default=False,
        description="Only waiting, parked, running and awaiting jobs, as one page, however many "
        "other jobs there are: first those that wait, by due time, then the others, by start, with "
        "their runs. Can be combined only with `lane`, `tenant`, `kind` and `state`. Examines the "
        "10 lanes and 50 workers with the most jobs, and the first 50 gates.",
    )
    finished_since: When | None = Field(default=None, description=FINISHED_SINCE)
    newest: bool = Field(default=False, description="Newest arrivals first.")
    runs: bool = Field(default=False, description="Include the runs of each job.")


class FlowsParams(QueryModel):
    """Which flows, and how much of each."""

    lane: Name | None = Field(default=None, description="Jobs that wait in this lane.")
    gate: Name | None = Field(
        default=None, description="Jobs parked at this gate; cannot be combined with `lane`."
    )
    tenant: TenantName | None = Field(default=None, description="Only jobs of this tenant.")
    first: int = Field(default=1, ge=1, le=100, description="Maximum number of ids of each flow.")
    limit: int = Field(default=100, ge=1, le=100, description="Maximum number of rows.")
    cursor: Cursor = None


@ROUTES.post(
    "",
    operation_id="send_jobs",
    summary="Create one job, or up to 10,000",
    status_code=201,
    response_model=MADE,
    response_description="The job was created.",
    responses={
        200: {
            "model": MADE | MADE_MANY,
            "description": "The job already existed, or the body was a list.",
        }
    },
)
async def send(
    body: Annotated[OneOrMany, Body(openapi_examples=_EXAMPLES)],
    service: TheService,
    caller: Sender,
    repeat_key: RepeatKey = None,
) -> Response:
    """Create jobs; when this returns, they are stored.

    If the server's App declares the kind, the gates and the policy come from there, and the
    arguments are checked. Jobs of other kinds are accepted unchanged. A list is stored in steps of
    1,000, each completely or not at all; a problem reports how many jobs the previous steps
    `stored`. With the `Idempotency-Key` header, ids are derived from it: a repeat creates the same
    jobs, and another body under the same key is a conflict.
    """
    bodies = [body] if isinstance(body, JobBody) else body
    with named_by_body():
        jobs = await make_jobs(service, caller, bodies, repeat_key=repeat_key)
        if repeat_key is not None and not isinstance(body, JobBody):
            await check_repeated_list(service, caller, bodies, repeat_key)
        made = await send_jobs(service, jobs, caller=caller)
    if isinstance(body, JobBody):
        return json_reply(made[0], 201 if made[0].created else 200)
    return json_reply({"jobs": made})


@ROUTES.get("", summary="List jobs", response_model=JOBS)
async def list_jobs(
    params: Annotated[JobsParams, Query()],
    service: TheService,
    caller: Reader,
) -> Response:
    """List the jobs that the caller sees, oldest arrival first.

    A page may be short or even empty and still have a cursor, because only a bounded number of jobs
    or bytes is read. Runs are included only on request; the trail is included only for a single
    job.
    """
    if params.lane is not None:
        caller.check_lane(params.lane)
    query = JobsQuery(
        ids=None if params.id is None else tuple(filter(is_job_id, params.id)),
        worker=params.worker,
        lane=params.lane,
        tenant=caller.tenant(params.tenant),
        kind=params.kind,
        states=tuple(params.state),
        key=params.key,
        subject=params.subject,
        newest=params.newest,
        runs=params.runs,
        cursor=check_number_cursor(params.cursor),
        limit=params.limit,
    )
    if params.underway:
        _refuse_beside_underway(params)
        return answer({"rows": await underway_jobs(service.store, query, caller), "cursor": None})

    since = params.finished_since and params.finished_since.ago(await service.now())

    def fits(job: JobView) -> bool:
        visible = caller.sees(job) and query.tenant in {None, job.tenant}
        return visible and ended_since(job, since)

    page = await bounded_page(service.store, query, fits)
    return answer({"rows": page.rows, "cursor": page.cursor})


def _refuse_beside_underway(params: JobsParams) -> None:
    others = ("id", "worker", "key", "subject", "finished_since", "newest", "runs", "cursor")
    given = [name for name in others if getattr(params, name)]
    if given:
        message = f"`underway` cannot be combined with `{given[0]}`"
        raise InvalidValue(message, hint="filter by lane, tenant, kind and state")


@FLOWS.get("", summary="List waiting jobs", response_model=FLOWS_PAGE)
async def list_flows(
    params: Annotated[FlowsParams, Query()],
    service: TheService,
    caller: Reader,
) -> Response:
    """List the jobs that wait in a lane, or are parked at a gate, by flow, as the caller sees them.

    A flow consists of the jobs of one lane, tenant and kind that need the same shared gates. The
    cost does not depend on how many other jobs there are. A page may be short or even empty and
    still have a cursor.

    Raises:
        InvalidValue: neither `lane` nor `gate` is given, or both are.
    """
    if (params.lane is None) == (params.gate is None):
        message = "flows are listed for a lane or for a gate"
        raise InvalidValue(message, hint="pass either `lane` or `gate`")
    if params.lane is not None:
        caller.check_lane(params.lane)
    tenant = caller.tenant(params.tenant)
    query = FlowsQuery(
        lane=params.lane or "",
        gate=params.gate,
        first=params.first,
        cursor=check_number_cursor(params.cursor),
        limit=params.limit,
    )
    page = await service.store.read(query)
    rows = [flow for flow in page.rows if caller.sees(flow) and tenant in {None, flow.tenant}]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.get("/{id}", summary="Get a job", response_model=reply_model(JobView))
async def get_job(id: str, service: TheService, caller: Reader) -> Response:
    """Return a job with its runs, oldest first, and the last lines of its trail."""
    return answer(await visible_job(service, caller, id))


@ROUTES.get("/{id}/why", summary="Explain why a job is not running", response_model=WHY)
async def why(id: str, service: TheService, caller: Reader) -> Response:
    """Explain in one sentence why a job is in its current state, with the facts behind it.

    The reply lists every gate that is closed for the job, who holds it, and when it opens if that
    is known; the job's position in its flow; and whether any live worker serves its lane. The cost
    does not depend on the size of the store. Holders that the caller may not see are omitted, but
    included in `holder_count`.
    """
    job, found = await visible_why(service, caller, id)
    facts = {
        "kind": job.kind,
        "lane": job.lane,
        "tenant": job.tenant,
        "due_at": job.due_at,
        "blocked": bool(found.closed or found.never_fits) or found.state is State.PARKED,
    }
    return answer({**record(found), **facts})
