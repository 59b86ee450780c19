"""/events: what changes, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

from fastapi import Depends, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from headway.core.errors import AccessError, StoreError
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import check_again, needs
from headway.server.events.subscriber import Subscriber
from headway.server.routes.router import TheService, router

ROUTES = router("observe")


async def _subscription(
    service: TheService, caller: Annotated[Caller, needs(Permission.OBSERVE)]
) -> AsyncGenerator[Subscriber]:
    caller.whole()
    subscriber = await service.feed.join()
    try:
        yield subscriber
    finally:
        service.feed.leave(subscriber)


@ROUTES.get(
    "/events",
    operation_id="events",
    summary="What changes, as it changes",
    response_class=EventSourceResponse,
)
async def events(
    request: Request,
    caller: Annotated[Caller, needs(Permission.OBSERVE)],
    subscriber: Annotated[Subscriber, Depends(_subscription)],
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events, of which each has a `now` (ms since 1970) and parts by name.

    The first one is `whole`: `stats`, `lanes`, `gates` (the first 500) and `workers`, each by
    name. A `change` has only the rows that differ; a row that is null is gone. `away` says that
    the store does not answer; when it does again, a `whole` follows. Whoever comes back, or reads
    too slowly, gets a `whole` again. A comment is sent when nothing was for 15 seconds. The stream
    ends soon after its token does.
    """
    while (message := await subscriber.next()) is not None:
        if not await _may_stay(request, caller):
            return
        yield ServerSentEvent(id=message.id, event=message.event, raw_data=message.data)


async def _may_stay(request: Request, caller: Caller) -> bool:
    try:
        await check_again(request, caller)
    except AccessError:
        return False
    except StoreError:
        # The store's absence is what the stream may be about to tell.
        return True
    return True
