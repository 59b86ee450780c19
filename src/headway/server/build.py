"""The server as an ASGI app: routes, middleware and background tasks."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from headway.core.errors import InvalidValue, InvariantBroken
from headway.runtime.chores import Sweep, TimetableChore
from headway.runtime.settings_table import read_table
from headway.server.access import policy_of
from headway.server.alerts.engine import AlertSettings, engine_rule_set
from headway.server.alerts.rule_set import check_names
from headway.server.alerts.watch import AlertSink, AlertWatcher, LogSink
from headway.server.api_docs import DESCRIPTION, add_api_page, describe
from headway.server.middleware import (
    BodyLimit,
    CrossSiteCheck,
    RequestEnvelope,
    TraceContext,
    UnambiguousRequest,
)
from headway.server.problems import add_problem_handlers
from headway.server.routes import (
    claims,
    gates,
    jobs,
    lanes,
    monitoring,
    moves,
    settlements,
    signals,
    timetable,
    tokens,
)
from headway.server.routing import FastPath
from headway.server.service import Service, System

ROUTERS: tuple[APIRouter, ...] = (
    jobs.ROUTES,
    jobs.FLOWS,
    moves.ROUTES,
    lanes.ROUTES,
    gates.ROUTES,
    timetable.ROUTES,
    monitoring.WHOLE,
    tokens.ROUTES,
    tokens.ME,
    claims.ROUTES,
    settlements.ROUTES,
    signals.ROUTES,
    signals.HOOKS,
    monitoring.ROUTES,
)
"""The routers of the engine; systems add their own."""

_PARAMETER = re.compile(r"\{\w+(?::str(?=\}))?")
_MOST_FREQUENT = {"/v1/jobs", "/v1/claims", "/v1/settlements", "/v1/leases"}

FAST_ROUTES: tuple[APIRoute, ...] = tuple(
    route
    for one in ROUTERS
    for route in one.routes
    if isinstance(route, APIRoute)
    and route.path in _MOST_FREQUENT
    and "POST" in (route.methods or ())
)
"""The most frequent routes, which get a fast path."""


def start_chores(service: Service) -> None:
    """Start sweeping and running the timetable.

    Any number of servers and workers may do so at once.
    """
    keep = service.options.keep_trail_ms
    sweep = Sweep(service.store, service.timing, keep_trail_ms=keep)
    service.keep_running(sweep.run, "sweep")
    service.keep_running(TimetableChore(service.store, service.timing).run, "timetable")


def start_alerts(service: Service) -> None:
    """Start the alert watcher, which sends alerts while this server is the leader.

    Raises:
        InvalidValue: the settings of alerts are invalid, or an extra is missing.
    """
    settings = read_table("alerts", AlertSettings, service.options.alerts)
    rule_sets = (engine_rule_set(settings), *service.alerts.rule_sets)
    check_names(rule_sets, settings.off)
    service.alerts.off = settings.off
    watch = AlertWatcher(
        service.store,
        service.timing,
        rule_sets=rule_sets,
        alerts=service.alerts,
        sinks=_sinks(settings),
        each_ms=settings.each_ms,
    )
    service.keep_running(watch.run, "alerts")


def _sinks(settings: AlertSettings) -> list[AlertSink]:
    sinks: list[AlertSink] = [LogSink()]
    if not settings.urls:
        return sinks
    try:
        # Imported here because the package is an extra.
        from headway.server.alerts.apprise_sink import AppriseSink  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = f"alerts.urls needs the package {error.name}, which is not installed"
        raise InvalidValue(message, hint="pip install 'headway[alerts]'") from None
    for number, url in enumerate(settings.urls, start=1):
        sinks.append(AppriseSink(url, f"alerts.urls: address {number}"))
    return sinks


def build(service: Service, systems: Sequence[System] = ()) -> FastAPI:
    """Build the server as an ASGI app.

    Args:
        service: closed when the app shuts down; its store is not.

    Raises:
        InvariantBroken: a route has no policy, or the path of another route.
    """
    options = service.options

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncGenerator[None]:
        async with alive(service, systems):
            yield

    app = FastAPI(
        title="Headway",
        version=metadata.version("headway"),
        description=DESCRIPTION,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        # A redirect would send the client to whatever host the request named, with its body.
        redirect_slashes=False,
    )
    app.state.service = service
    taken: set[tuple[str, str]] = set()
    for one in (*ROUTERS, *(router for system in systems for router in system.routers)):
        _check_routes(one, taken)
        # Not `include_router`, which would build each route again, on its first request.
        app.router.routes.extend(one.routes)
    describe(app)
    if options.docs:
        add_api_page(app)
    add_problem_handlers(app)
    # The middleware that is added last is the outermost.
    app.add_middleware(FastPath, routes=FAST_ROUTES)
    app.add_middleware(
        BodyLimit, most=options.max_body, seconds=options.body_timeout_s, timing=service.timing
    )
    app.add_middleware(CrossSiteCheck, hosts=options.hosts)
    app.add_middleware(UnambiguousRequest)
    app.add_middleware(RequestEnvelope, timing=service.timing, metrics=service.scrapes.requests)
    if options.traces:
        app.add_middleware(TraceContext)
    return app


@asynccontextmanager
async def alive(service: Service, systems: Sequence[System] = ()) -> AsyncGenerator[None]:
    """Run the background tasks and systems of a server while the block runs.

    Raises:
        HeadwayError: the declarations are refused, or the store cannot be reached.
    """
    try:
        if service.app is not None:
            await service.app.declare()
        for system in systems:
            await system.start(service)
        service.keep_running(service.tokens.note_uses, "uses of tokens")
        if service.options.chores:
            start_chores(service)
            start_alerts(service)
        yield
    finally:
        await service.close()


def _check_routes(router: APIRouter, taken: set[tuple[str, str]]) -> None:
    for route in router.routes:
        if not isinstance(route, APIRoute) or policy_of(route) is None:
            message = f"the route {getattr(route, 'path', route)} has no policy"
            raise InvariantBroken(message, hint="give its handler a caller: needs(...) or public()")
        # The names of parameters do not matter, but their converters do; `str` is the default one.
        called = {(one, _PARAMETER.sub("{", route.path)) for one in route.methods or ()}
        for method, _ in called & taken:
            message = f"{method} {route.path} is already the path of another route"
            raise InvariantBroken(message, hint="only the first of them would be called")
        taken |= called
