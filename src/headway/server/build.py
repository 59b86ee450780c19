"""The server as an ASGI app: routes, guards around them, and what runs beside them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from headway.core.errors import InvariantBroken
from headway.server.access.doorkeeper import Doorkeeper
from headway.server.access.policy import policy_of
from headway.server.alerting import start_alerts
from headway.server.api_description import DESCRIPTION, describe
from headway.server.api_page import add_api_page
from headway.server.chores import start_chores
from headway.server.guards.access_log import AccessLog
from headway.server.guards.body_limit import BodyLimit
from headway.server.guards.browsers import Browsers
from headway.server.guards.headers import SafeHeaders
from headway.server.guards.one_meaning import OneMeaning
from headway.server.guards.request_id import RequestId
from headway.server.guards.unexpected import Unexpected
from headway.server.metrics.request_metrics import CountRequests
from headway.server.quick_way import QuickWay
from headway.server.replies.problem import tell_problems
from headway.server.routes.catalogue import QUICK, ROUTERS
from headway.server.service import Service
from headway.server.system import System


def build(service: Service, systems: Sequence[System] = ()) -> FastAPI:
    """The server.

    Args:
        service: what its routes work with; closed with the server, but not its store.
        systems: whose routes are served too.

    Returns:
        An ASGI app.

    Raises:
        InvariantBroken: a route names no policy.
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
        # To send a body on, a redirect would name whatever host the request named.
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.door = Doorkeeper(service.tokens, service.rates)
    for one in (*ROUTERS, *(router for system in systems for router in system.routers)):
        _refuse_open_doors(one)
        # Not included: that would build each route anew, in the first request that passes by it.
        app.router.routes.extend(one.routes)
    describe(app)
    if options.docs:
        add_api_page(app)
    tell_problems(app)
    # The last one added is the outermost.
    app.add_middleware(QuickWay, routes=QUICK)
    app.add_middleware(
        BodyLimit, most=options.max_body, seconds=options.body_timeout_s, timing=service.timing
    )
    app.add_middleware(Browsers, hosts=options.hosts)
    app.add_middleware(OneMeaning)
    app.add_middleware(Unexpected)
    app.add_middleware(AccessLog, timing=service.timing)
    app.add_middleware(CountRequests, metrics=service.scrapes.requests, timing=service.timing)
    app.add_middleware(SafeHeaders)
    if options.traces:
        # Only those who trace have what it needs.
        from headway.server.guards.callers_trace import CallersTrace  # noqa: PLC0415

        app.add_middleware(CallersTrace)
    app.add_middleware(RequestId)
    return app


@asynccontextmanager
async def alive(service: Service, systems: Sequence[System] = ()) -> AsyncGenerator[None]:
    """What must run beside a server, for as long as the block lasts.

    Args:
        service: closed at the end.
        systems: each is started.

    Raises:
        HeadwayError: something cannot be declared, or the store cannot be reached.
    """
    try:
        if service.app is not None:
            await service.app.declare()
        for system in systems:
            await system.start(service)
        service.spawn(service.tokens.note_uses(), "uses of tokens")
        if service.options.chores:
            start_chores(service)
            start_alerts(service)
        yield
    finally:
        await service.close()


def _refuse_open_doors(router: APIRouter) -> None:
    for route in router.routes:
        if not isinstance(route, APIRoute) or policy_of(route) is None:
            message = f"the route {getattr(route, 'path', route)} names no policy"
            raise InvariantBroken(message, hint="give its handler a caller: needs(...) or public()")
