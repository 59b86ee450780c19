"""The whole store from outside: workers, counts, the trail, events, metrics and health."""

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
from headway.server.access import Observer, Public
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


class TrailAsked(PageQuery):
    """Which lines of the trail."""

    target: Name | None = Field(default=None, description="Only of this job, gate, lane or entry.")


class AuditAsked(QueryModel):
    """Which part of the audit."""

    cursor: Cursor = None
    limit: int = Field(default=10_000, ge=1, le=10_000, description="Gates, permits and jobs.")


@WHOLE.get("/workers", summary="List workers", response_model=WORKERS)
async def list_workers(asked: WhichPage, service: TheService, caller: Observer) -> Response:
    """List workers that live, or died less than an hour ago, by id.

    Of a worker over HTTP the id begins with the id of the token that it has.
    """
    caller.whole()
    found = await service.store.read(WorkersQuery())
    seen = [one for one in found if caller.lanes is None or any(map(caller.covers, one.lanes))]
    return answer(page_of(seen, attrgetter("id"), asked))


@WHOLE.get("/stats", summary="Counts of the whole store", response_model=reply_model(StatsView))
async def stats(service: TheService, caller: Observer) -> Response:
    """Jobs by state, totals since the store was made, the store's time, identity and revision."""
    caller.whole()
    return answer(await service.store.read(StatsQuery()))


@WHOLE.get(
    "/overview", summary="Lanes, gates, workers and counts", response_model=reply_model(Overview)
)
async def overview(service: TheService, caller: Observer) -> Response:
    """All lanes, the first 500 gates by name, all workers, and the counts, in one reply."""
    caller.whole()
    return answer(await read_overview(service.store))


@WHOLE.get("/trail", summary="Who did what", response_model=TRAIL)
async def trail(
    asked: Annotated[TrailAsked, Query()], service: TheService, caller: Observer
) -> Response:
    """The moves of operators and of code, newest first: who, when, why."""
    caller.whole()
    query = TrailQuery(
        target=asked.target, cursor=check_number_cursor(asked.cursor), limit=asked.limit
    )
    return answer(await service.store.read(query))


@WHOLE.get("/audit", summary="Compare permits with holders", response_model=reply_model(AuditView))
async def audit(
    asked: Annotated[AuditAsked, Query()], service: TheService, caller: Observer
) -> Response:
    """Compare permits with their holders, and caches with permits; whatever it finds is a bug.

    A page looks at up to `limit` of them; go on with its cursor until that is null. It stops no
    worker.
    """
    caller.whole()
    query = AuditQuery(cursor=decode_cursor(asked.cursor), limit=asked.limit)
    found = await service.store.read(query)
    return answer({**record(found), "cursor": encode_cursor(found.cursor)})


ROUTES = router("observe")


async def _subscription(service: TheService, caller: Observer) -> AsyncGenerator[Subscriber]:
    caller.whole()
    subscriber = await service.feed.join()
    try:
        yield subscriber
    finally:
        service.feed.leave(subscriber)


@ROUTES.get("/events", summary="What changes, as it changes", response_class=EventSourceResponse)
async def events(
    request: Request,
    service: TheService,
    caller: Observer,
    subscriber: Annotated[Subscriber, Depends(_subscription)],
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events, of which each has a `now` (ms since 1970) and parts by name.

    The first one is `whole`: `stats`, `lanes`, `gates` (the first 500) and `workers`, each by
    name. A `change` has only the rows that differ; a row that is null is gone. `away` says that
    the store does not answer; when it does again, a `whole` follows. A client that reconnects, or
    reads too slowly, gets a `whole` again. A comment is sent after 15 seconds without an event. The
    stream ends soon after its token does.
    """
    while (message := await subscriber.next()) is not None:
        if not await service.tokens.may_stay(request.headers.get("authorization"), caller):
            return
        yield ServerSentEvent(id=message.id, event=message.event, raw_data=message.data)


@ROUTES.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "The metrics; in OpenMetrics if the caller accepts it.",
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
    caller: Observer,
) -> Response:
    """Jobs by lane and state, gates, workers, and this server's own requests.

    No label names a tenant or what stands in a job. Answers also when the store does not:
    `headway_store_up` is 0 then.
    """
    caller.whole()
    text, media_type = await service.scrapes.scrape(
        request.headers.get("accept", ""),
        long_polls=len(service.long_polls),
        event_streams=len(service.feed),
        leads=service.alerts.leads,
    )
    return Response(text, headers={"Content-Type": media_type})


_HEALTH = reply("Health", "That all is well.", status=(Literal["ok"], "Always ok."))
_log = logging.getLogger("headway.server")


@ROUTES.get("/healthz", summary="Alive", response_model=_HEALTH)
async def healthz(_: Public) -> Response:
    """Return whether the process answers at all; never asks the store."""
    return answer({"status": "ok"})


@ROUTES.get("/readyz", summary="Ready", response_model=_HEALTH, responses={503: PROBLEM})
async def readyz(request: Request, service: TheService, _: Public) -> Response:
    """Whether requests should come here: the store answers within two seconds and is current.

    The code of the problem says what is missing: `store_unavailable`, `schema_mismatch`,
    `store_changed`, `stopping`.
    """
    if service.stopping.is_set():
        return _not_ready(request, "stopping", "The server is about to stop.")
    fault = await service.readiness.fault()
    if fault is None:
        return answer({"status": "ok"})
    _log.warning("not ready: %s", fault)
    # The route needs no token, so the reply has the kind of the fault, not the store's address.
    return _not_ready(request, fault.code, (getdoc(type(fault)) or "").partition("\n")[0])


def _not_ready(request: Request, code: str, detail: str) -> Response:
    return problem(
        503, code=code, detail=detail, request=request, headers={"Retry-After": str(RETRY_AFTER_S)}
    )
