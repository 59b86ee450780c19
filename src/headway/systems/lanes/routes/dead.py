"""GET /dead and POST /retry."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from headway.contract.operate import Acted, ActReply, Edit, Verb
from headway.contract.views import JobsQuery
from headway.core.errors import InvalidValue
from headway.core.state import State
from headway.server.access.caller import Caller, Permission
from headway.server.access.policy import Reader, needs
from headway.server.bodies.base import Name, TenantName
from headway.server.bodies.jobs import EditBody, FilterBody
from headway.server.job_pages import bounded_page
from headway.server.paging import PageQuery, RepeatKey, check_number_cursor
from headway.server.replies.reply import answer, page_model, reply
from headway.server.routes.moves import Operation, edit_of, move_fitting, move_named
from headway.server.routes.router import TheService, router
from headway.systems.lanes.bodies import RetryBody
from headway.systems.lanes.job_ids import find_id
from headway.systems.lanes.lane_job import LaneJob, lane_job

ROUTES = router("system: lanes", any_type=True)

RETRIED_ONE = reply(
    "LanesRetriedOne",
    "The result for one job.",
    job_id=(str, "The engine's id."),
    answer=(Acted, '"refused": it is not dead.'),
)
RETRIED = reply(
    "LanesRetried",
    "The result of a retry.",
    done=(int, "They wait again, with all their attempts."),
    refused=(int, "They are not dead."),
    unknown=(int, "There is no such job that the caller sees."),
    jobs=(list[RETRIED_ONE] | None, "In the order of `job_ids`; null without."),
)


class DeadAsked(PageQuery):
    """Which dead jobs."""

    lane: Name | None = Field(default=None, description="Only of this lane.")
    type: Name | None = Field(default=None, description="Only of this type.")
    tenant: TenantName | None = Field(default=None, description="Only of this tenant.")


@ROUTES.get(
    "/dead", operation_id="lanes_dead", summary="Dead jobs", response_model=page_model(LaneJob)
)
async def dead(
    asked: Annotated[DeadAsked, Query()],
    service: TheService,
    caller: Reader,
) -> Response:
    """Dead jobs with their errors, the newest first.

    A page may be short, or even empty, and yet have a cursor: a bounded number of jobs was looked
    at, or they carry much.
    """
    if asked.lane is not None:
        caller.check_lane(asked.lane)
    query = JobsQuery(
        lane=asked.lane,
        kind=asked.type,
        tenant=caller.tenant(asked.tenant),
        states=(State.DEAD,),
        newest=True,
        cursor=check_number_cursor(asked.cursor),
        limit=asked.limit,
    )
    page = await bounded_page(service.store, query)
    rows = [lane_job(job) for job in page.rows if caller.sees(job)]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.post(
    "/retry", operation_id="lanes_retry", summary="Retry dead jobs", response_model=RETRIED
)
async def retry(
    body: RetryBody,
    service: TheService,
    caller: Annotated[Caller, needs(Permission.ACT)],
    repeat_key: RepeatKey = None,
) -> Response:
    """Give dead jobs a new life: those named, or those of a lane or a type, oldest first.

    One job may get another payload. With the header `Idempotency-Key` a repeat returns what the
    first did.

    Raises:
        InvalidValue: it does not say which jobs, or says it twice, or one payload is for several.
    """
    _check(body)
    edit = Edit()
    if body.payload is not None:
        edit = await edit_of(service, EditBody(args=body.payload))
    move = Operation(verb=Verb.RETRY, edit=edit, caller=caller, reason=body.reason)
    move = move.under(repeat_key, body.model_dump())
    if body.job_ids is None:
        which = FilterBody(lane=body.lane, kind=body.type, tenant=body.tenant)
        return answer(_view(await move_fitting(service, move, which, body.limit), None))
    ids = [await find_id(service, caller, one, body.tenant) for one in body.job_ids]
    replies = await move_named(service, move, ids)
    return answer(_view(Counter(one.answer for one in replies), replies))


def _check(body: RetryBody) -> None:
    by_filter = body.lane is not None or body.type is not None
    if by_filter == (body.job_ids is not None):
        message = "it is not clear which jobs are meant"
        raise InvalidValue(message, hint="give `job_ids`, or `lane`, `type` or both")
    if body.payload is not None and len(body.job_ids or ()) != 1:
        message = "a payload is for one job"
        raise InvalidValue(message, hint="give its job_id alone")


def _view(counts: Counter[Acted], replies: list[ActReply] | None) -> dict[str, object]:
    return {
        **{str(one): counts[one] for one in (Acted.DONE, Acted.REFUSED, Acted.UNKNOWN)},
        "jobs": None
        if replies is None
        else [{"job_id": one.id, "answer": str(one.answer)} for one in replies],
    }
