"""/v1/workers, /v1/stats, /v1/overview, /v1/trail, /v1/audit: the whole store from outside."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from headway.contract.views import (
    AuditQuery,
    AuditView,
    StatsQuery,
    StatsView,
    TrailQuery,
    WorkersQuery,
    WorkerView,
)
from headway.server.access.policy import Observer
from headway.server.bodies.base import Name, QueryModel
from headway.server.overview import Overview, read_overview
from headway.server.paging import (
    Cursor,
    PageQuery,
    WhichPage,
    check_number_cursor,
    decode_cursor,
    encode_cursor,
    page_of,
)
from headway.server.replies.models import TRAIL, WORKERS
from headway.server.replies.reply import answer, reply_model
from headway.server.routes.router import TheService, router

ROUTES = router("the whole", prefix="/v1")


class TrailAsked(PageQuery):
    """Which lines of the trail."""

    target: Name | None = Field(default=None, description="Only of this job, gate, lane or entry.")


class AuditAsked(QueryModel):
    """Which part of the audit."""

    cursor: Cursor = None
    limit: int = Field(default=10_000, ge=1, le=10_000, description="Gates, permits and jobs.")


@ROUTES.get("/workers", operation_id="list_workers", summary="List workers", response_model=WORKERS)
async def workers(asked: WhichPage, service: TheService, caller: Observer) -> Response:
    """List workers that live, or died less than an hour ago, by id.

    Of a worker over HTTP the id begins with the id of the token that it has.
    """
    caller.whole()
    found = await service.store.read(WorkersQuery())
    seen = [one for one in found if caller.lanes is None or any(map(caller.covers, one.lanes))]
    return answer(page_of(seen, _id, asked))


@ROUTES.get(
    "/stats",
    operation_id="stats",
    summary="Counts of the whole store",
    response_model=reply_model(StatsView),
)
async def stats(service: TheService, caller: Observer) -> Response:
    """Jobs by state, totals since the store was made, the store's time, identity and revision."""
    caller.whole()
    return answer(await service.store.read(StatsQuery()))


@ROUTES.get(
    "/overview",
    operation_id="overview",
    summary="Lanes, gates, workers and counts",
    response_model=reply_model(Overview),
)
async def overview(service: TheService, caller: Observer) -> Response:
    """All lanes, the first 500 gates by name, all workers, and the counts, in one reply."""
    caller.whole()
    return answer(await read_overview(service.store))


@ROUTES.get("/trail", operation_id="trail", summary="Who did what", response_model=TRAIL)
async def trail(
    asked: Annotated[TrailAsked, Query()], service: TheService, caller: Observer
) -> Response:
    """The moves of operators and of code, newest first: who, when, why."""
    caller.whole()
    query = TrailQuery(
        target=asked.target, cursor=check_number_cursor(asked.cursor), limit=asked.limit
    )
    return answer(await service.store.read(query))


@ROUTES.get(
    "/audit",
    operation_id="audit",
    summary="Compare permits with holders",
    response_model=reply_model(AuditView),
)
async def audit(
    asked: Annotated[AuditAsked, Query()], service: TheService, caller: Observer
) -> Response:
    """Compare permits with their holders, and count with permits; finds nothing, ever.

    A page looks at up to `limit` of them; go on with its cursor until that is null. It stops no
    worker.
    """
    caller.whole()
    query = AuditQuery(cursor=decode_cursor(asked.cursor), limit=asked.limit)
    found = await service.store.read(query)
    return answer({**_fields(found), "cursor": encode_cursor(found.cursor)})


def _id(worker: WorkerView) -> str:
    return worker.id


def _fields(found: AuditView) -> dict[str, object]:
    return {
        "differences": found.differences,
        "gates": found.gates,
        "permits": found.permits,
        "held": found.held,
    }
