"""The routes of this system, under /api/automations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field

from headway.runtime.records import record
from headway.server.access import needs
from headway.server.bodies.base import Body, Name, QueryModel
from headway.server.caller import Caller, Permission, whole_lanes
from headway.server.replies import answer, reply, reply_model
from headway.server.routing import TheService, router, system_service
from headway.systems.automations.dispatcher import LANE, NAME, Dispatcher
from headway.systems.automations.reports import (
    MOST_SESSIONS,
    Health,
    Lock,
    concurrency,
    health,
    listing,
    locks,
    mark,
    metrics,
    release,
    set_concurrency,
    survey,
    unsettled,
)
from headway.systems.automations.runner import Notice
from headway.systems.automations.session import session_id

ROUTES = router("system: automations", prefix="/api/automations")


check_caller = whole_lanes(LANE)
"""Refuses a caller whose token is limited to some tenants or to other lanes."""


Observer = Annotated[Caller, needs(Permission.OBSERVE, reach=check_caller)]
Actor = Annotated[Caller, needs(Permission.ACT, reach=check_caller)]
Definer = Annotated[Caller, needs(Permission.DEFINE, reach=check_caller)]
TheDispatcher = Annotated[Dispatcher, system_service(NAME)]
"""A route's parameter: `dispatcher: TheDispatcher`."""

SETTLES_WITHIN_S = 30.0
"""How long a dispatch waits until all that is due has started."""

HEALTH = reply(
    "DispatcherHealth",
    "How the dispatcher is.",
    status=(Health, "`unhealthy` comes with status 503."),
    uptime=(int, "Seconds since this server started."),
    lastDispatchTime=(int | None, "When it started a session last, ms UTC."),
    activeLocks=(int | None, "Repositories that sessions have; null without the store."),
    concurrencyUsage=(dict[str, int | None], "Sessions `used`, and `max`."),
    nextDispatchTime=(int | None, "When something fires next, ms UTC."),
)
RESULT = reply(
    "DispatchResult",
    "What a dispatch did.",
    dispatched=(int, "Sessions started."),
    skipped=(dict[str, int], "notDue, locked, concurrencyLimit, disabled."),
    errors=(list[dict[str, str | None]], "automationId and error."),
)
METRICS = reply(
    "DispatcherMetrics",
    "What this server has done since it started, and how things stand.",
    lastDispatchTime=(int | None, "When it started a session last, ms UTC."),
    lastDispatchDuration=(int | None, "From due to started, of that one, ms."),
    lastDispatchResult=(RESULT | None, "Of the last moment at which something started."),
    totalDispatches=(int, "Moments at which something started."),
    totalAutomationsSpawned=(int, "Sessions started."),
    totalSkips=(int, "Fires folded into an earlier one, as long as the entries are known."),
    totalErrors=(int, "Sessions that did not succeed."),
    activeAutomations=(int, "Sessions that run."),
    lockedRepositories=(list[str], "Normalised URLs."),
    availableConcurrencySlots=(int | None, "Sessions that may start now."),
)
USAGE = reply(
    "Concurrency",
    "How many sessions there are.",
    used=(int, "That run."),
    max=(int | None, "That may run at once."),
)
LISTED = reply("Automations", "The file.", automations=(list[dict[str, Any]], "In its order."))
LOCKS = reply("Locks", "Locks.", locks=(list[reply_model(Lock)], "The longest held first."))
NOTICES = reply(
    "Notices", "Notices.", notices=(list[reply_model(Notice)], "The last 100, the newest first.")
)
STARTED = reply("Started", "A session.", session_id=(str, "Its id."), job=(str, "Its job."))


class ConcurrencyBody(Body):
    """How many sessions may run at once."""

    max: int | None = Field(ge=0, le=MOST_SESSIONS, description="null for what the file says.")


class ReleaseAsked(QueryModel):
    """How a lock is released."""

    force: bool = Field(default=False, description="Free it before its session is gone.")


@ROUTES.get("", summary="Entries with next fire and newest session", response_model=LISTED)
async def automations(service: TheService, dispatcher: TheDispatcher, _: Observer) -> Response:
    """Each entry of the file with its next fire and its newest session."""
    return answer({"automations": await listing(service.store, dispatcher)})


@ROUTES.post("/dispatch", summary="Start what is due, and say what did", response_model=RESULT)
async def dispatch(service: TheService, dispatcher: TheDispatcher, _: Actor) -> Response:
    """Apply the file, let start what is due, and say what did.

    The server fires everything at its moment by itself; this is for those who do not want to wait
    until an edit is seen.
    """
    begun = await mark(service.store)
    dispatcher.read()
    await dispatcher.sync(service.store)
    until = service.timing.monotonic() + SETTLES_WITHIN_S
    while await unsettled(service.store) and service.timing.monotonic() < until:
        await service.timing.pause(0.1)
    result = await survey(service.store, dispatcher, begun)
    return answer(result.document(camel=True))


@ROUTES.get(
    "/dispatcher/health",
    summary="How the dispatcher is",
    response_model=HEALTH,
    responses={503: {"model": HEALTH, "description": "Unhealthy."}},
)
async def dispatcher_health(
    service: TheService, dispatcher: TheDispatcher, _: Observer
) -> Response:
    """Return whether everything fires when it should; 503 when it does not."""
    found = await health(service.store, dispatcher)
    return answer(found, 503 if found["status"] == "unhealthy" else 200)


@ROUTES.get("/dispatcher/metrics", summary="What the dispatcher has done", response_model=METRICS)
async def dispatcher_metrics(
    service: TheService, dispatcher: TheDispatcher, _: Observer
) -> Response:
    """What the dispatcher has done; for Prometheus the same is in /metrics."""
    return answer(await metrics(service.store, dispatcher))


@ROUTES.get("/notices", summary="Notices about entries and sessions", response_model=NOTICES)
async def automation_notices(dispatcher: TheDispatcher, _: Observer) -> Response:
    """The last notices of this server since it started, the newest first."""
    notices = dispatcher.runner.notices
    return answer({"notices": [record(one) for one in (notices.recent if notices else ())]})


@ROUTES.get("/locks", summary="Repositories that sessions have", response_model=LOCKS)
async def automation_locks(service: TheService, _: Observer) -> Response:
    """The repositories that sessions have."""
    return answer({"locks": [record(one) for one in await locks(service.store)]})


@ROUTES.delete(
    "/locks/{repo:path}", summary="End a session, and so its lock", response_model=reply_model(Lock)
)
async def release_lock(
    repo: Name,
    asked: Annotated[ReleaseAsked, Query()],
    service: TheService,
    dispatcher: TheDispatcher,
    caller: Actor,
) -> Response:
    """End the session that has a repository, and so its lock; with `force`, the lock at once."""
    done = await release(service.store, dispatcher, repo, author=caller.name, force=asked.force)
    return answer(record(done))


@ROUTES.get(
    "/concurrency",
    operation_id="concurrency",
    summary="How many sessions there are",
    response_model=USAGE,
)
async def concurrency_route(service: TheService, _: Observer) -> Response:
    """How many sessions there are, and how many there may be."""
    return answer(await concurrency(service.store))


@ROUTES.put(
    "/concurrency",
    operation_id="set_concurrency",
    summary="Change how many there may be",
    response_model=USAGE,
)
async def set_concurrency_route(
    body: ConcurrencyBody, service: TheService, caller: Definer
) -> Response:
    """Change how many sessions may run at once; those that run go on."""
    return answer(await set_concurrency(service.store, body.max, author=caller.name))


@ROUTES.post("/{automation_id}/run", summary="Make a session due now", response_model=STARTED)
async def run_automation(
    automation_id: Name, service: TheService, dispatcher: TheDispatcher, _: Actor
) -> Response:
    """Make one session due now; it waits for its repository and its place like any other."""
    job = await dispatcher.run_now(service.store, automation_id)
    return answer({"session_id": session_id(automation_id, job), "job": job})
