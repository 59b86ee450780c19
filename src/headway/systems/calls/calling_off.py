"""Calling a lead off: before its call, or in the middle of it."""

from __future__ import annotations

import logging
from uuid import uuid4

from headway.contract.operate import ActRequest, Verb
from headway.contract.views import JobQuery, JobView
from headway.core.errors import InvalidState, ProviderError
from headway.core.state import FINAL, State
from headway.systems.calls.desk import Desk
from headway.systems.calls.hearing import hangs_up_first, progress_of
from headway.systems.calls.lead import call_of

_log = logging.getLogger("headway.calls")


async def call_off(desk: Desk, job: JobView, author: str) -> JobView:
    """Calls a lead off, and hangs up if it is being called.

    The cancel comes first: a call that is not placed by then is not placed any more.

    Args:
        desk: of this system.
        job: the lead's, with its runs.
        author: who wants it; stands on the trail.

    Returns:
        The job as it is then: cancelled; or it still awaits the end of its call.

    Raises:
        InvalidState: it has ended meanwhile.
        ProviderError: the provider does not hang up; the lead ends with its call.
        StoreError: the store is away.
    """
    await desk.store.act(
        ActRequest(
            request=str(uuid4()), ids=(job.id,), verb=Verb.CANCEL, author=author, reason="ABORT"
        )
    )
    now = await desk.store.read(JobQuery(id=job.id))
    if now is None or (now.state in FINAL and now.state is not State.CANCELLED):
        message = "the lead has ended meanwhile"
        raise InvalidState(message, hint="GET /leads/{id} shows what became of it")
    if now.state is State.AWAITING:
        await _hang_up(desk, now, again=job.cancel_requested)
    return now


async def _hang_up(desk: Desk, job: JobView, *, again: bool) -> None:
    call = call_of(job.runs[-1])
    said = progress_of(job, job.run)
    if call is None and said is not None:
        call = said.provider, said.call_id
    if call is None:
        _log.warning("lead %s: its call is not known yet, and cannot be hung up", job.id)
        return
    # A webhook may have made the call known, and ended it, since the cancel was asked for.
    if not await hangs_up_first(desk, f"{job.id}:{job.run}") and not again:
        return
    try:
        await desk.parts.exchange.voice(call[0]).hang_up(call[1])
    except ProviderError as error:
        _log.warning("lead %s: its call is not hung up: %s", job.id, error)
        raise
