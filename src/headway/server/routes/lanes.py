"""/v1/lanes: what each lane holds and carries, and changing it."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from headway.contract.definitions import DeclareLane, OpenGate, ResetLane, SetLane
from headway.contract.views import LanesQuery, LaneView, StatsQuery
from headway.runtime.latency import MOST_LANES, LaneLatency, lane_latencies
from headway.runtime.records import record
from headway.server.access import Definer, Observer
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


class LaneAsked(QueryModel):
    """The body of a lane."""

    latency: bool = Field(
        default=False, description="With what it reaches beside its target; a few reads a lane."
    )


class LaneChange(QueryModel):
    """In whose name a lane is changed."""

    declare: bool = Field(default=False, description="As code does, and not as an operator.")


class LanesAsked(PageQuery, LaneAsked):
    """Which lanes."""

    name: list[Name] | None = Field(
        default=None, max_length=1_000, description="Only these; repeatable."
    )


@ROUTES.get("", summary="List lanes", response_model=LANES)
async def list_lanes(
    asked: Annotated[LanesAsked, Query()], service: TheService, caller: Observer
) -> Response:
    """List the lanes that the caller covers, with their jobs by state and their live workers.

    Every name is a lane: one that is asked for and was never used is shown as empty. With
    `latency` a page has at most 200.
    """
    caller.every_tenant()
    stats = await service.store.read(StatsQuery())
    names = None if asked.name is None else tuple(dict.fromkeys(asked.name))
    found = await service.store.read(LanesQuery(names=names))
    if asked.latency:
        asked = asked.model_copy(update={"limit": min(asked.limit, MOST_LANES)})
    page = page_of([one for one in found if caller.covers(one.name)], attrgetter("name"), asked)
    rows = await _lane_views(service, page.rows, latency=asked.latency)
    return listed(stats, rows, page.cursor)


@ROUTES.get("/{name:path}", summary="One lane", response_model=LANE)
async def get_lane(
    name: Name,
    asked: Annotated[LaneAsked, Query()],
    service: TheService,
    caller: Observer,
) -> Response:
    """A lane: its jobs by state, what it carries, the live workers that serve it."""
    caller.every_tenant()
    caller.check_lane(name)
    revision = (await service.store.read(StatsQuery())).revision
    found = await service.store.read(LanesQuery(names=(name,)))
    rows = await _lane_views(service, found, latency=asked.latency)
    return answer(rows[0], headers=etag(revision))


@ROUTES.put("/{name:path}", summary="Set what a lane carries", response_model=DEFINED)
async def set_lane(
    name: Name,
    asked: Annotated[LaneChange, Query()],
    body: LaneBody,
    service: TheService,
    caller: Definer,
    if_match: IfMatch = None,
) -> Response:
    """Replace all that a lane carries; it wins over what code declares, until it is reset.

    With `declare` it says so as code does: what an operator has set still wins.
    """
    caller.check_gate(f"lane:{name}")
    spec = body.spec(name)
    item = DeclareLane(spec=spec) if asked.declare else SetLane(spec=spec)
    return await define(service, caller, item, if_match=if_match)


@ROUTES.delete("/{name:path}", summary="Reset a lane", response_model=DEFINED)
async def reset_lane(
    name: Name, service: TheService, caller: Definer, if_match: IfMatch = None
) -> Response:
    """Forget an operator's values; what code declares holds again. Its jobs stay."""
    caller.check_gate(f"lane:{name}")
    return await define(service, caller, ResetLane(name=name), if_match=if_match)


@ROUTES.post("/{name:path}/pause", summary="Pause a lane", response_model=CLOSED)
async def pause_lane(
    name: Name, service: TheService, caller: Definer, body: UntilBody = _FOR_GOOD
) -> Response:
    """Nothing more starts from the lane, for good or until a moment; what runs goes on."""
    return await close_gate(service, caller, f"lane:{name}", body)


@ROUTES.post("/{name:path}/resume", summary="End a pause", response_model=DEFINED)
async def resume_lane(name: Name, service: TheService, caller: Definer) -> Response:
    """End a pause, by any author; a lane that is not paused stays as it is."""
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
