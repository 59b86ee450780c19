"""Pulls of callers: their claims, within what they may claim, kept by nobody who is gone."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from fastapi import Request, Response

from headway.server.access.caller import Caller
from headway.server.access.policy import check_again
from headway.server.bodies.claim import ClaimBody
from headway.server.pulling.hand_out import HandOut
from headway.server.pulling.lease import check_lease
from headway.server.pulling.presence import ClientGone, Presence
from headway.server.pulling.pull import Pull, Pulled
from headway.server.pulling.wanted import Wanted, check_lanes, is_pattern
from headway.server.replies.answer import unread
from headway.server.service import Service

_encode = msgspec.json.Encoder().encode


async def answer_pull(
    service: Service,
    caller: Caller,
    body: ClaimBody,
    request: Request,
    tell: Callable[[Pulled], object],
) -> Response:
    """Claims for a caller, waits while there is nothing, and answers with what it brings.

    Where the caller goes away, or does not read the answer whole, nothing stays claimed.

    Args:
        service: whose lobby it waits in.
        caller: what it may claim bounds what is claimed; its id is part of the worker's.
        body: what it asks for.
        request: that asks; its body has been read.
        tell: what is answered, as plain JSON.

    Raises:
        Unauthenticated: its token ended while it waited.
        Forbidden: a lane is not the caller's, or the caller may not claim at all.
        InvalidValue: a value is out of its range.
        StoreError: the store could not answer.
    """
    lobby = service.lobby
    presence = Presence(request.receive)
    try:
        pulled = await presence.during(_pull(service, caller, body, request), lobby.give_back)
    except ClientGone:
        return unread()
    return HandOut(
        _encode(tell(pulled)),
        presence=presence,
        timing=service.timing,
        unread=lambda: lobby.give_back(pulled),
    )


async def _pull(service: Service, caller: Caller, body: ClaimBody, request: Request) -> Pulled:
    # A claim is not told for whom its jobs are to be, so it hands out those of any tenant.
    caller.every_tenant()
    lanes = check_lanes(body.weighted_lanes)
    for name, _ in lanes:
        if not is_pattern(name):
            caller.check_lane(name)
    pull = Pull(
        worker=caller.worker(body.worker),
        wanted=Wanted(lanes=lanes, order=body.order, reach=caller.lanes),
        n=body.max,
        free=body.max if body.free is None else body.free,
        lease_ms=check_lease(body.lease),
        request=body.request,
        after=body.after,
    )
    pulled = await service.lobby.pull(pull, min(body.wait / 1000, service.options.longest_wait_s))
    if pulled.jobs and body.wait:
        try:
            await check_again(request, caller)
        except BaseException:
            service.lobby.give_back(pulled)
            raise
    return pulled
