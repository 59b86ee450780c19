"""/v1/lanes: reading and changing lanes."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from headway.contract.definitions import DeclareLane, OpenGate, ResetLane, SetLane
from headway.contract.views import LanesQuery, LaneView, StatsQuery
from headway.runtime.latency import MOST_LANES, LaneLatency, lane_latencies
from headway.runtime.records import record
from headway.server.access import Definer, TenantsObserver
from headway.server.bodies.base import Name, QueryModel
from headway.server.bodies.definitions import LaneBody, UntilBody
from headway.server.paging import (
    DEFINED,
    IfMatch,
    PageQuery,
    close_gate,
    define,
    etag,
    listed,
    page_of,
)
from headway.server.replies import CLOSED, LANE, LANES, answer
from headway.server.routing import TheService, router
from headway.server.service import Service

ROUTES = router("lanes", prefix="/v1/lanes")

_FOR_GOOD = UntilBody()


class LaneParams(QueryModel):
    """What to include for a lane."""

    latency: bool = Field(
        default=False,
        description="Include the measured latency next to its target; costs a few reads for each "
        "lane.",
    )


class LaneChange(QueryModel):
    """In whose name a lane is changed."""

    declare: bool = Field(
        default=False, description="Declare the values as code does, not as an operator."
    )


class LanesParams(PageQuery, LaneParams):
    """Which lanes."""

    name: list[Name] | None = Field(
        default=None, max_length=1_000, description="Only lanes with this name; repeatable."
    )


@ROUTES.get("", summary="List lanes", response_model=LANES)
async def list_lanes(
    params: Annotated[LanesParams, Query()], service: TheService, caller: TenantsObserver
) -> Response:
    """List the lanes in the caller's scope, with their jobs by state and their live workers.

    Every name is a lane: a requested one that was never used is shown as empty. With `latency`, a
    page has at most 200 lanes.
    """
    stats = await service.store.read(StatsQuery())
    names = None if params.name is None else tuple(dict.fromkeys(params.name))
    found = await service.store.read(LanesQuery(names=names))
    if params.latency:
        params = params.model_copy(update={"limit": min(params.limit, MOST_LANES)})
    page = page_of([one for one in found if caller.covers(one.name)], attrgetter("name"), params)
    rows = await _lane_views(service, page.rows, latency=params.latency)
    return listed(stats, rows, page.cursor)


@ROUTES.get("/{name:path}", summary="Get a lane", response_model=LANE)
async def get_lane(
    name: Name,
    params: Annotated[LaneParams, Query()],
    service: TheService,
    caller: TenantsObserver,
) -> Response:
    """Return a lane: its jobs by state, its settings, and the live workers that serve it."""
    caller.check_lane(name)
    revision = (await service.store.read(StatsQuery())).revision
    found = await service.store.read(LanesQuery(names=(name,)))
    rows = await _lane_views(service, found, latency=params.latency)
    return answer(rows[0], headers=etag(revision))


@ROUTES.put("/{name:path}", summary="Change a lane", response_model=DEFINED)
async def set_lane(
    name: Name,
    params: Annotated[LaneChange, Query()],
    body: LaneBody,
    service: TheService,
    caller: Definer,
    if_match: IfMatch = None,
) -> Response:
    """Replace all settings of a lane; they take precedence over what code declares until reset.

    With `declare`, the settings count as declared by code: an operator's values take precedence.
    """
    caller.check_gate(f"lane:{name}")
    spec = body.spec(name)
    item = DeclareLane(spec=spec) if params.declare else SetLane(spec=spec)
    return await define(service, caller, item, if_match=if_match)


@ROUTES.delete("/{name:path}", summary="Reset a lane", response_model=DEFINED)
async def reset_lane(
    name: Name, service: TheService, caller: Definer, if_match: IfMatch = None
) -> Response:
    """Remove an operator's values; what code declares applies again. The lane's jobs stay."""
    caller.check_gate(f"lane:{name}")
    return await define(service, caller, ResetLane(name=name), if_match=if_match)


@ROUTES.post("/{name:path}/pause", summary="Pause a lane", response_model=CLOSED)
async def pause_lane(
    name: Name, service: TheService, caller: Definer, body: UntilBody = _FOR_GOOD
) -> Response:
    """Start nothing more from the lane, indefinitely or until a time; running jobs continue."""
    return await close_gate(service, caller, f"lane:{name}", body)


@ROUTES.post("/{name:path}/resume", summary="Resume a lane", response_model=DEFINED)
async def resume_lane(name: Name, service: TheService, caller: Definer) -> Response:
    """End a pause by any author; a lane that is not paused stays unchanged."""
    gate = f"lane:{name}"
    caller.check_gate(gate)
    return await define(service, caller, OpenGate(name=gate))


async def _lane_views(
    service: Service, lanes: tuple[LaneView, ...], *, latency: bool
) -> list[dict[str, object]]:
    reached: dict[str, LaneLatency] = {}
    if latency and lanes:
        found = await lane_latencies(service.store, [one.name for one in lanes])
        reached = {one.lane: one for one in found}
    return [{**record(one), "latency": reached.get(one.name)} for one in lanes]
