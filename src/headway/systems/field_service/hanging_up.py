"""Hanging up: calls about offers that are over."""

from __future__ import annotations

import logging
import uuid

from headway.contract.operate import ActRequest, Verb
from headway.contract.views import JobsQuery, JobView
from headway.core.cascade import Answer
from headway.core.errors import ProviderError
from headway.core.state import QUEUED, State
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.names import NAME, RING
from headway.systems.field_service.ring_args import call_of, offer_of
from headway.systems.field_service.standing import last_run, run_of

BY_CALL = "by call"
"""The reason of an answer that was given by pressing a key: that call ends by itself."""

_LIVE = (*QUEUED, State.RUNNING, State.AWAITING)
_log = logging.getLogger("headway.field_service")


async def hang_up_others(desk: Desk, request: JobView) -> bool:
    """Ends the calls about a request, but for the one of the offer that stands or was accepted.

    Args:
        desk: of the system.
        request: the request's job.

    Returns:
        Whether none is left; one that is just being placed can be ended a little later.
    """
    store = desk.app.store
    query = JobsQuery(subject=request.id, tenant="", kind=RING, states=_LIVE, runs=True)
    page = await store.read(query)
    done = True
    for ring in page.rows:
        _, run = run_of(offer_of(ring))
        if not _is_over(request, run) or _says_goodbye(request, run):
            continue
        if ring.state in QUEUED:
            await store.act(
                ActRequest(
                    request=str(uuid.uuid4()),
                    ids=(ring.id,),
                    verb=Verb.CANCEL,
                    author=NAME,
                    reason="the offer is over",
                )
            )
            continue
        done = await _hang_up(desk, ring) and done
    return done


def _is_over(request: JobView, run: int) -> bool:
    # A later run than was read is one that has begun since.
    stands = request.state in {State.RUNNING, State.AWAITING, State.SUCCEEDED}
    return run < request.run or (run == request.run and not stands)


def _says_goodbye(request: JobView, run: int) -> bool:
    said = next((one for one in request.runs if one.run == run), None)
    asked = request.cascade.asked if request.cascade is not None else ()
    return said is not None and any(
        one.candidate == said.candidate and one.answer is Answer.DECLINED and one.reason == BY_CALL
        for one in asked
    )


async def _hang_up(desk: Desk, ring: JobView) -> bool:
    run = last_run(ring)
    call = call_of(run.keys) if run is not None else None
    if call is None:
        return False
    provider, call_id = call
    try:
        await desk.exchange.voice(provider).hang_up(call_id)
    except ProviderError as error:
        _log.warning("a call of %s could not be hung up: %s", provider, error)
        return False
    return True
