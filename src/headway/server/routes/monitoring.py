"""Monitoring a store and server: workers, counts, the trail, events, metrics and health."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from inspect import getdoc
from operator import attrgetter
from typing import Annotated, Literal

from fastapi import Depends, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from headway.contract.views import (
    AuditQuery,
    AuditView,
    StatsQuery,
    StatsView,
    TrailQuery,
    WorkersQuery,
)
from headway.runtime.records import record
from headway.server.access import Public, WholeObserver
from headway.server.bodies.base import Name, QueryModel
from headway.server.overview import Overview, Subscriber, read_overview
from headway.server.paging import (
    Cursor,
    PageQuery,
    WhichPage,
    check_number_cursor,
    decode_cursor,
    encode_cursor,
    page_of,
)
from headway.server.problems import RETRY_AFTER_S, problem
from headway.server.replies import TRAIL, WORKERS, answer, reply, reply_model
from headway.server.routing import PROBLEM, TheService, router

WHOLE = router("the whole", prefix="/v1")


class TrailParams(PageQuery):
    """Which lines of the trail."""

    target: Name | None = Field(
        default=None, description="Only lines about this job, gate, lane or entry."
    )


class AuditParams(QueryModel):
    """Which part of the audit."""

    cursor: Cursor = None
    limit: int = Field(
        default=10_000,
        ge=1,
        le=10_000,
        description="Maximum number of gates, permits and jobs to examine.",
    )


@WHOLE.get("/workers", summary="List workers", response_model=WORKERS)
async def list_workers(params: WhichPage, service: TheService, _: WholeObserver) -> Response:
    """List workers that are live, or died less than an hour ago, by id.

    The id of a worker over HTTP starts with the id of its token.
    """
    found = await service.store.read(WorkersQuery())
    return answer(page_of(found, attrgetter("id"), params))


@WHOLE.get("/stats", summary="Get counts of the whole store", response_model=reply_model(StatsView))
async def stats(service: TheService, _: WholeObserver) -> Response:
    """Return jobs by state, totals since the store was created, its time, identity and revision."""
    return answer(await service.store.read(StatsQuery()))


@WHOLE.get(
    "/overview",
    summary="Get lanes, gates, workers and counts",
    response_model=reply_model(Overview),
)
async def overview(service: TheService, _: WholeObserver) -> Response:
    """Return all lanes, the first 500 gates by name, all workers, and the counts, in one reply."""
    return answer(await read_overview(service.store))


@WHOLE.get("/trail", summary="List who did what", response_model=TRAIL)
async def trail(
    params: Annotated[TrailParams, Query()], service: TheService, _: WholeObserver
) -> Response:
    """List the moves of operators and of code, newest first: who, when and why."""
    query = TrailQuery(
        target=params.target, cursor=check_number_cursor(params.cursor), limit=params.limit
    )
    return answer(await service.store.read(query))


@WHOLE.get("/audit", summary="Compare permits with holders", response_model=reply_model(AuditView))
async def audit(
    params: Annotated[AuditParams, Query()], service: TheService, _: WholeObserver
) -> Response:
    """Compare permits with their holders, and caches with permits; any difference is a bug.

    A page examines up to `limit` of them; continue with its cursor until that is null. No worker is
    stopped.
    """
    query = AuditQuery(cursor=decode_cursor(params.cursor), limit=params.limit)
    found = await service.store.read(query)
    return answer({**record(found), "cursor": encode_cursor(found.cursor)})


ROUTES = router("observe")


async def _subscription(service: TheService) -> AsyncGenerator[Subscriber]:
    subscriber = await service.feed.join()
    try:
        yield subscriber
    finally:
        service.feed.leave(subscriber)


@ROUTES.get("/events", summary="Stream changes", response_class=EventSourceResponse)
async def events(
    request: Request,
    service: TheService,
    caller: WholeObserver,
    subscriber: Annotated[Subscriber, Depends(_subscription)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream server-sent events, each with a `now` (ms since 1970) and parts by name.

    The first event is `whole`: `stats`, `lanes`, `gates` (the first 500) and `workers`, each by
    name. A `change` contains only the rows that differ; a row that is null has been removed. `away`
    means that the store does not respond; once it does, a `whole` follows. A client that
    reconnects, or reads too slowly, gets another `whole`. A comment is sent after 15 seconds
    without an event. The stream ends soon after its token expires.
    """
    while (message := await subscriber.next()) is not None:
        if not await service.tokens.may_stay(request.headers.get("authorization"), caller):
            return
        yield ServerSentEvent(id=message.id, event=message.event, raw_data=message.data)


@ROUTES.get(
    "/metrics",
    summary="Get metrics for Prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "The metrics, in the OpenMetrics format if the caller accepts it.",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/openmetrics-text": {"schema": {"type": "string"}},
            },
        }
    },
)
async def metrics(
    request: Request,
    service: TheService,
    _: WholeObserver,
) -> Response:
    """Return metrics about jobs by lane and state, gates, workers, and this server's own requests.

    No label contains a tenant or the content of a job. The reply arrives even if the store does not
    respond: `headway_store_up` is then 0.
    """
    text, media_type = await service.scrapes.scrape(
        request.headers.get("accept", ""),
        long_polls=len(service.long_polls),
        event_streams=len(service.feed),
        leads=service.alerts.leads,
    )
    return Response(text, headers={"Content-Type": media_type})


_HEALTH = reply("Health", "The health of the server.", status=(Literal["ok"], "Always ok."))
_log = logging.getLogger("headway.server")


@ROUTES.get("/healthz", summary="Check liveness", response_model=_HEALTH)
async def healthz(_: Public) -> Response:
    """Return whether the process responds at all; this never queries the store."""
    return answer({"status": "ok"})


@ROUTES.get("/readyz", summary="Check readiness", response_model=_HEALTH, responses={503: PROBLEM})
async def readyz(request: Request, service: TheService, _: Public) -> Response:
    """Return whether the server is ready: its store responds within two seconds and is current.

    Otherwise, the code of the problem gives the reason: `store_unavailable`, `schema_mismatch`,
    `store_changed`, `store_full`, `store_read_only` or `stopping`. Whether the store's device is
    full or its server read-only is known from the last check of the alerts, which writes.
    """
    if service.stopping.is_set():
        return _not_ready(request, "stopping", "The server is stopping.")
    fault = await service.readiness.fault() or service.alerts.refused
    if fault is None:
        return answer({"status": "ok"})
    _log.warning("not ready: %s", fault)
    # The route is public, so the reply only has the type of the error, not the store's address.
    return _not_ready(request, fault.code, (getdoc(type(fault)) or "").partition("\n")[0])


def _not_ready(request: Request, code: str, detail: str) -> Response:
    return problem(
        503, code=code, detail=detail, request=request, headers={"Retry-After": str(RETRY_AFTER_S)}
    )
