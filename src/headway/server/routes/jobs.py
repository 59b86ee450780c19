"""/v1/jobs: making jobs, finding them, asking why one is not running."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query, Response
from fastapi.openapi.models import Example
from pydantic import Field

from headway.contract.enqueue import Enqueued
from headway.contract.views import JobsQuery, JobView
from headway.core.state import State
from headway.runtime.records import record
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.asking import PageAsked, RepeatKey, numbered
from headway.server.bodies.job import JobBody, OneOrMany
from headway.server.bodies.words import Name, TenantName
from headway.server.for_callers.bounded_page import bounded_page
from headway.server.for_callers.making import make_jobs
from headway.server.for_callers.sending import send_jobs
from headway.server.for_callers.sight import job_seen, why_seen
from headway.server.replies.answer import answer, plain
from headway.server.replies.error_members import named_by_body
from headway.server.replies.jobs import JOBS, MADE, MADE_MANY, WHY
from headway.server.replies.schema import reply_model
from headway.server.routes.router import TheService, router

ROUTES = router("jobs", prefix="/v1/jobs")

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


class JobsAsked(PageAsked):
    """Which jobs; what is left out stands for any."""

    lane: Name | None = Field(default=None, description="Only of this lane.")
    tenant: TenantName | None = Field(default=None, description="Only of this tenant.")
    kind: Name | None = Field(default=None, description="Only of this kind.")
    state: list[State] = Field(default=[], description="Only in these; may be repeated.")
    key: Name | None = Field(
        default=None,
        description="Only the job that has this key; `tenant` says whose, else nobody's.",
    )
    subject: Name | None = Field(
        default=None, description="Only about this; `tenant` says whose, else nobody's."
    )
    newest: bool = Field(default=False, description="Newest arrival first.")
    runs: bool = Field(default=False, description="With the runs of each.")


@ROUTES.post(
    "",
    operation_id="send_jobs",
    summary="Make one job, or up to 10,000",
    status_code=201,
    response_model=MADE,
    response_description="The job was made.",
    responses={200: {"model": MADE | MADE_MANY, "description": "It was there; or: a list."}},
)
async def send(
    body: Annotated[OneOrMany, Body(openapi_examples=_EXAMPLES)],
    service: TheService,
    caller: Annotated[Caller, needs(Permission.SEND)],
    repeat_key: RepeatKey = None,
) -> Response:
    """Makes jobs; when this returns, they are stored.

    A kind that the server's App declares gets its gates and policy from there, and its arguments
    are checked. Any other is taken as it is. A list is stored in steps of 1,000, each whole or not
    at all; a problem says how many were `stored` by the steps before. With the header
    `Idempotency-Key`, ids are made of it: a repeat makes the same jobs, and another body under
    the same key is a conflict.
    """
    bodies = [body] if isinstance(body, JobBody) else body
    with named_by_body():
        jobs = await make_jobs(service, caller, bodies, repeat_key=repeat_key)
        made = await send_jobs(service, jobs, caller=caller)
    if isinstance(body, JobBody):
        return plain(_made(made[0]), 201 if made[0].created else 200)
    return plain({"jobs": [_made(one) for one in made]})


@ROUTES.get("", operation_id="list_jobs", summary="List jobs", response_model=JOBS)
async def listing(
    asked: Annotated[JobsAsked, Query()],
    service: TheService,
    caller: Annotated[Caller, needs(Permission.READ)],
) -> Response:
    """Lists the jobs that the caller sees, oldest arrival first.

    A page may be short, or even empty, and yet have a cursor: a bounded number of jobs was looked
    at, or they carry much. Runs are only in it if they are asked for; the trail is with each job
    by itself.
    """
    if asked.lane is not None:
        caller.check_lane(asked.lane)
    query = JobsQuery(
        lane=asked.lane,
        tenant=caller.tenant(asked.tenant),
        kind=asked.kind,
        states=tuple(asked.state),
        key=asked.key,
        subject=asked.subject,
        newest=asked.newest,
        runs=asked.runs,
        cursor=numbered(asked.cursor),
        limit=asked.limit,
    )
    page = await bounded_page(service.store, query)
    rows = [job for job in page.rows if caller.sees(job)]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.get("/{id}", operation_id="get_job", summary="One job", response_model=reply_model(JobView))
async def one(
    id: str,  # noqa: A002  (the path's word)
    service: TheService,
    caller: Annotated[Caller, needs(Permission.READ)],
) -> Response:
    """A job and its whole record: its runs, oldest first, and the last lines of its trail."""
    return answer(await job_seen(service, caller, id))


@ROUTES.get("/{id}/why", operation_id="why", summary="Why a job is not running", response_model=WHY)
async def why(
    id: str,  # noqa: A002  (the path's word)
    service: TheService,
    caller: Annotated[Caller, needs(Permission.READ)],
) -> Response:
    """Says in one sentence why a job stands where it stands, and the facts behind it.

    Every gate that is closed for it, with who holds it, and when it opens if that is known; its
    place in its flow; whether any live worker serves its lane. It costs the same at any size of
    the store. Holders that the caller may not see are left out; `holder_count` counts them.
    """
    job, found = await why_seen(service, caller, id)
    facts = {
        "kind": job.kind,
        "lane": job.lane,
        "tenant": job.tenant,
        "due_at": job.due_at,
        "blocked": bool(found.closed or found.never_fits) or found.state is State.PARKED,
    }
    return answer({**record(found), **facts})


def _made(one: Enqueued) -> dict[str, object]:
    return {"id": one.id, "created": one.created}
