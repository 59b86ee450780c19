"""Pulls of callers: their claims, within what they may claim."""

from __future__ import annotations

from headway.server.access.caller import Caller
from headway.server.pulling.pull import Pull, Pulled
from headway.server.pulling.pull_request import PullRequest, check_pull
from headway.server.pulling.wanted import Wanted, check_lanes, is_pattern
from headway.server.service import Service


async def pull(service: Service, caller: Caller, request: PullRequest) -> Pulled:
    """Claims for a caller; while there is nothing, waits.

    If it is cancelled, nothing stays claimed. Where the reply does not reach its caller,
    `service.lobby.give_back` hands back what it brought.

    Args:
        service: whose lobby it waits in.
        caller: what it may claim bounds what is claimed; its id is part of the worker's.
        request: what it asks for.

    Returns:
        The jobs; none when the time is up or the server stops.

    Raises:
        Forbidden: a lane is not the caller's, or the caller may not claim at all.
        InvalidValue: a value is out of its range.
        StoreError: the store could not answer.
    """
    # A claim is not told for whom its jobs are to be, so it hands out those of any tenant.
    caller.whole()
    lanes = check_lanes(request.lanes)
    for name, _ in lanes:
        if not is_pattern(name):
            caller.check_lane(name)
    wanted = Wanted(lanes=lanes, order=request.order, reach=caller.lanes)
    check_pull(request)
    return await service.lobby.pull(
        Pull(
            worker=caller.worker(request.worker),
            wanted=wanted,
            n=request.n,
            free=request.n if request.free is None else request.free,
            lease_ms=request.lease_ms,
            request=request.request,
            after=request.after,
        ),
        min(request.wait_ms / 1000, service.options.longest_wait_s),
    )
