"""Sending jobs on to the store, in steps that it takes, and telling who waits for them."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.enqueue import Enqueued
from headway.core.errors import HeadwayError, IdConflict, KeyConflict
from headway.core.job import MAX_BATCH, NewJob
from headway.server.access.caller import ANYBODY, Caller
from headway.server.for_callers.sight import hide_conflict
from headway.server.replies.error_members import add_members
from headway.server.service import Service


async def send_jobs(
    service: Service, jobs: Sequence[NewJob], *, caller: Caller = ANYBODY
) -> list[Enqueued]:
    """Stores jobs, a thousand a step; each step is stored whole or not at all.

    Args:
        service: whose store.
        jobs: any number.
        caller: a conflict with a job that it does not see is not reported as one.

    Returns:
        For each job, in this order, which job exists and whether this call made it.

    Raises:
        HeadwayError: a step is refused, or the store cannot do it now. Where there are several
            steps, its problem says of how many jobs the steps before were `stored`.
    """
    replies: list[Enqueued] = []
    for start in range(0, len(jobs), MAX_BATCH):
        if start:
            await service.timing.pause(0)  # not every store lets others run
        step = jobs[start : start + MAX_BATCH]
        try:
            replies += await _enqueue(service, step)
        except HeadwayError as refused:
            error = refused
            if isinstance(refused, IdConflict | KeyConflict):
                error = await hide_conflict(service, caller, refused)
            if len(jobs) > MAX_BATCH:
                add_members(error, stored=start)
            raise error from None
        service.lobby.meet({job.lane for job in step})
    return replies


async def _enqueue(service: Service, step: Sequence[NewJob]) -> list[Enqueued]:
    if service.app is not None and service.app.store is service.store:
        # It tells the store of its gates again, should the store have been lost since.
        return [Enqueued(*sent) for sent in await service.app.send_many_async(step)]
    return await service.store.enqueue(step)
