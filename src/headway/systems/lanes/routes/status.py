"""GET /lanes and /jobs/{job_id}."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from headway.server.access.policy import Observer, Reader
from headway.server.bodies.base import Name, QueryModel, TenantName
from headway.server.replies.reply import answer, reply, reply_model
from headway.server.routes.router import TheService, router
from headway.systems.lanes.job_ids import find_job
from headway.systems.lanes.lane_job import LaneJob, lane_job
from headway.systems.lanes.status import LaneStatus, lane_statuses

ROUTES = router("system: lanes")

LANES = reply("LaneStatuses", "Lanes.", lanes=(list[reply_model(LaneStatus)], "By name."))


class LanesAsked(QueryModel):
    """Which lanes."""

    lane: list[Name] = Field(default=[], max_length=200, description="Only these; may be repeated.")


class JobAsked(QueryModel):
    """Whose job."""

    tenant: TenantName | None = Field(
        default=None, description="Where the job_id is no UUID: whose it is."
    )


@ROUTES.get("/lanes", operation_id="lanes_status", summary="Lanes", response_model=LANES)
async def lanes(
    asked: Annotated[LanesAsked, Query()],
    service: TheService,
    caller: Observer,
) -> Response:
    """Lanes: how many jobs have each status, and how long they wait beside the lane's target."""
    caller.every_tenant()
    for name in asked.lane:
        caller.check_lane(name)
    found = await lane_statuses(service.store, asked.lane or None)
    return answer({"lanes": [one for one in found if caller.covers(one.lane)]})


@ROUTES.get(
    "/jobs/{job_id:path}",
    operation_id="lanes_job",
    summary="One job",
    response_model=reply_model(LaneJob),
)
async def job(
    job_id: str,
    asked: Annotated[JobAsked, Query()],
    service: TheService,
    caller: Reader,
) -> Response:
    """A job by the engine's id, or by the job_id that it was enqueued with."""
    return answer(lane_job(await find_job(service, caller, job_id, asked.tenant)))
