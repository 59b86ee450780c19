"""GET /field-service/live: the page that shows each request as it is dispatched."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, cast

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from headway.core.errors import AccessError, StoreError
from headway.server.access.caller import Caller
from headway.server.access.doorkeeper import Doorkeeper
from headway.server.access.permissions import Permission
from headway.server.access.policy import check_again, needs, public
from headway.server.events.subscriber import Subscriber
from headway.server.routes.router import TheService, router
from headway.systems.field_service.desk import TheDesk
from headway.systems.field_service.live.feed import CSP, look_at_board, page, static
from headway.systems.field_service.names import OFFERS

ROUTES = router("system: field_service")
Anybody = Annotated[Caller, public()]
Watcher = Annotated[Caller, needs(Permission.READ)]


@ROUTES.get(
    "/field-service/live",
    operation_id="field_live",
    summary="The live page",
    response_class=HTMLResponse,
)
async def live(request: Request, service: TheService, desk: TheDesk, _: Anybody) -> Response:
    """A page for browsers: each request, who was asked, what they said, the time left.

    Whoever may see requests gets them with the page; others get a page without any, that asks for
    a token.
    """
    board = None
    if await _may_see(request):
        board = await look_at_board(service.store, desk.directory)
    return HTMLResponse(page(board), headers={"Content-Security-Policy": CSP})


@ROUTES.get(
    "/field-service/live/live.js",
    operation_id="field_live_script",
    summary="The live page's script",
    response_class=Response,
)
async def script(_: Anybody) -> Response:
    """The live page's script."""
    return Response(static("live.js"), media_type="text/javascript")


@ROUTES.get(
    "/field-service/live/live.css",
    operation_id="field_live_style",
    summary="The live page's style",
    response_class=Response,
)
async def style(_: Anybody) -> Response:
    """The live page's style."""
    return Response(static("live.css"), media_type="text/css")


async def _watching(desk: TheDesk, caller: Watcher) -> AsyncGenerator[Subscriber]:
    _check(caller)
    watcher = await desk.live.join()
    try:
        yield watcher
    finally:
        desk.live.leave(watcher)


@ROUTES.get(
    "/field-service/live/events",
    operation_id="field_live_events",
    summary="What the live page shows, as it changes",
    response_class=EventSourceResponse,
)
async def events(
    request: Request, caller: Watcher, watcher: Annotated[Subscriber, Depends(_watching)]
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: `whole` has the board as HTML, and `now`; `away`: the store is away."""
    while (message := await watcher.next()) is not None:
        try:
            await check_again(request, caller)
        except AccessError:
            return
        except StoreError:
            pass  # its absence is what the stream may be about to tell
        yield ServerSentEvent(id=message.id, event=message.event, raw_data=message.data)


def _check(caller: Caller) -> None:
    caller.check_tenant("")
    caller.check_lane(OFFERS)


async def _may_see(request: Request) -> bool:
    door = cast("Doorkeeper", request.app.state.door)
    try:
        _check(await door.admit(request.headers.get("authorization"), Permission.READ))
    except AccessError:
        return False
    return True
