"""The routes of this system, under /api/automations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field

from headway.core.job import derived_id
from headway.runtime.records import record
from headway.server.access import needs
from headway.server.bodies.base import Body, Name, QueryModel
from headway.server.caller import Caller, Permission, whole_lanes
from headway.server.paging import RepeatKey, check_repeat_key
from headway.server.replies import answer, reply, reply_model
from headway.server.routing import TheService, router, system_service
from headway.systems.automations.config import MOST_SESSIONS
from headway.systems.automations.dispatcher import LANE, NAME, Dispatcher
from headway.systems.automations.notices import Notice
from headway.systems.automations.reports import (
    HealthStatus,
    Lock,
    concurrency,
    dispatch_result,
    health,
    listing,
    locks,
    metrics,
    release,
    remaining_work,
    set_concurrency,
    start_marker,
)
from headway.systems.automations.session import session_id

ROUTES = router("system: automations", prefix="/api/automations")


check_caller = whole_lanes(LANE)
"""Refuse a caller whose token is limited to some tenants or to other lanes."""


_Observer = Annotated[Caller, needs(Permission.OBSERVE, reach=check_caller)]
Actor = Annotated[Caller, needs(Permission.ACT, reach=check_caller)]
_Definer = Annotated[Caller, needs(Permission.DEFINE, reach=check_caller)]
TheDispatcher = Annotated[Dispatcher, system_service(NAME)]
"""A route's parameter: `dispatcher: TheDispatcher`."""

SETTLES_WITHIN_S = 30.0
"""Maximum time that a dispatch waits until all due sessions have started."""

HEALTH = reply(
    "DispatcherHealth",
    "The health of the dispatcher.",
    status=(HealthStatus, "Health; `unhealthy` is sent with status 503."),
    uptime=(int, "Seconds since this server started."),
    lastDispatchTime=(int | None, "When it last started a session, ms UTC."),
    activeLocks=(
        int | None,
        "Number of repositories in use by sessions; null if the store is unavailable.",
    ),
    concurrencyUsage=(dict[str, int | None], "Number of sessions: `used` and `max`."),
    nextDispatchTime=(int | None, "When the next entry fires, ms UTC."),
)
RESULT = reply(
    "DispatchResult",
    "The result of a dispatch.",
    dispatched=(int, "Number of sessions started."),
    skipped=(
        dict[str, int],
        "Number of skipped entries by reason: notDue, locked, concurrencyLimit, disabled.",
    ),
    errors=(list[dict[str, str | None]], "Errors, each with automationId and error."),
)
METRICS = reply(
    "DispatcherMetrics",
    "Totals since this server started, and its current state.",
    lastDispatchTime=(int | None, "When it last started a session, ms UTC."),
    lastDispatchDuration=(int | None, "How long that session took from due to started, ms."),
    lastDispatchResult=(RESULT | None, "Result of the last time at which a session started."),
    totalDispatches=(int, "Number of times at which sessions started."),
    totalAutomationsSpawned=(int, "Number of sessions started."),
    totalSkips=(int, "Number of fires folded into an earlier one, while their entries are known."),
    totalErrors=(int, "Number of sessions that did not succeed."),
    activeAutomations=(int, "Number of running sessions."),
    lockedRepositories=(list[str], "Normalised URLs of the repositories in use."),
    availableConcurrencySlots=(int | None, "Number of sessions that may start now."),
)
USAGE = reply(
    "Concurrency",
    "The number of sessions.",
    used=(int, "Number of running sessions."),
    max=(int | None, "Maximum number of sessions at once; null for no limit."),
)
LISTED = reply(
    "Automations",
    "The entries of the file.",
    automations=(list[dict[str, Any]], "Entries, in the order of the file."),
)
LOCKS = reply(
    "Locks",
    "The repositories in use.",
    locks=(list[reply_model(Lock)], "Locks, longest held first."),
)
NOTICES = reply(
    "Notices",
    "The latest notices.",
    notices=(list[reply_model(Notice)], "The last 100 notices, newest first."),
)
STARTED = reply(
    "Started",
    "A session that is due.",
    session_id=(str, "Id of the session."),
    job=(str, "Id of its job."),
)


class ConcurrencyBody(Body):
    """The maximum number of sessions at once."""

    max: int | None = Field(
        ge=0,
        le=MOST_SESSIONS,
        description="Maximum number of sessions at once; null for the value in the file.",
    )


class ReleaseParams(QueryModel):
    """How to release a lock."""

    force: bool = Field(default=False, description="Release the lock before its session is gone.")


@ROUTES.get("", summary="List entries", response_model=LISTED)
async def automations(service: TheService, dispatcher: TheDispatcher, _: _Observer) -> Response:
    """List the entries of the file, each with its next fire and its newest session."""
    return answer({"automations": await listing(service.store, dispatcher)})


@ROUTES.post("/dispatch", summary="Dispatch sessions that are due", response_model=RESULT)
async def dispatch(service: TheService, dispatcher: TheDispatcher, _: Actor) -> Response:
    """Apply the file, let sessions that are due start, and report which did.

    The server starts everything on time by itself; use this to avoid waiting until an edit is
    noticed.
    """
    start = await start_marker(service.store)
    dispatcher.read()
    await dispatcher.sync(service.store)
    until = service.timing.monotonic() + SETTLES_WITHIN_S
    while await remaining_work(service.store) and service.timing.monotonic() < until:
        await service.timing.pause(0.1)
    result = await dispatch_result(service.store, dispatcher, start)
    return answer(result.document(camel=True))


@ROUTES.get(
    "/dispatcher/health",
    summary="Get the dispatcher's health",
    response_model=HEALTH,
    responses={503: {"model": HEALTH, "description": "The dispatcher is unhealthy."}},
)
async def dispatcher_health(
    service: TheService, dispatcher: TheDispatcher, _: _Observer
) -> Response:
    """Return whether everything fires on time; the status is 503 if it does not."""
    found = await health(service.store, dispatcher)
    return answer(found, 503 if found["status"] == "unhealthy" else 200)


@ROUTES.get("/dispatcher/metrics", summary="Get the dispatcher's metrics", response_model=METRICS)
async def dispatcher_metrics(
    service: TheService, dispatcher: TheDispatcher, _: _Observer
) -> Response:
    """Return what the dispatcher has done; for Prometheus, /metrics has the same."""
    return answer(await metrics(service.store, dispatcher))


@ROUTES.get("/notices", summary="List notices about entries and sessions", response_model=NOTICES)
async def automation_notices(dispatcher: TheDispatcher, _: _Observer) -> Response:
    """List the latest notices since this server started, newest first."""
    notices = dispatcher.runner.notices
    return answer({"notices": [record(one) for one in (notices.recent if notices else ())]})


@ROUTES.get("/locks", summary="List repositories in use", response_model=LOCKS)
async def automation_locks(service: TheService, _: _Observer) -> Response:
    """List the repositories that sessions are using."""
    return answer({"locks": [record(one) for one in await locks(service.store)]})


@ROUTES.delete(
    "/locks/{repo:path}", summary="Release a repository", response_model=reply_model(Lock)
)
async def release_lock(
    repo: Name,
    params: Annotated[ReleaseParams, Query()],
    service: TheService,
    dispatcher: TheDispatcher,
    caller: Actor,
) -> Response:
    """End the session that uses a repository, which releases its lock; with `force`, at once."""
    done = await release(service.store, dispatcher, repo, author=caller.name, force=params.force)
    return answer(record(done))


@ROUTES.get(
    "/concurrency",
    operation_id="concurrency",
    summary="Get the number of sessions",
    response_model=USAGE,
)
async def concurrency_route(service: TheService, _: _Observer) -> Response:
    """Return how many sessions are running, and how many may."""
    return answer(await concurrency(service.store))


@ROUTES.put(
    "/concurrency",
    operation_id="set_concurrency",
    summary="Change the maximum number of sessions",
    response_model=USAGE,
)
async def set_concurrency_route(
    body: ConcurrencyBody, service: TheService, caller: _Definer
) -> Response:
    """Change how many sessions may run at once; running ones continue."""
    return answer(await set_concurrency(service.store, body.max, author=caller.name))


@ROUTES.post("/{automation_id}/run", summary="Start a session now", response_model=STARTED)
async def run_automation(
    automation_id: Name,
    service: TheService,
    dispatcher: TheDispatcher,
    caller: Actor,
    repeat_key: RepeatKey = None,
) -> Response:
    """Make a session due now; it waits for its repository and a free place like any other.

    With the `Idempotency-Key` header, a repeat starts no second session.
    """
    id = None
    if repeat_key is not None:
        id = derived_id("http", caller.id, check_repeat_key(repeat_key), "run", automation_id)
    job = await dispatcher.run_now(service.store, automation_id, id)
    return answer({"session_id": session_id(automation_id, job), "job": job})
