"""Passing over: when all remaining candidates are busy, those with another job are skipped.

A technician with an open offer, or on a call about one, is free again within minutes, so the
request waits. A technician who has accepted another request may be busy for hours.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.contract.operate import Edit, Verb
from headway.contract.store import Store, read_pages
from headway.contract.views import GatesQuery, GateState, JobQuery, JobsQuery, JobView, LanesQuery
from headway.core.state import QUEUED, State
from headway.systems.field_service.request import (
    NAME,
    OFFER,
    OFFERS,
    acceptor,
    asked_now,
    call_to,
    is_request,
    lock_of,
    read_request,
)
from headway.systems.jobs import act, ref_of

PASSED_OVER = "passed over, for they have another request: "
"""Prefix of the reason on the trail; the ids of the technicians follow."""
FREE_AGAIN = "free again: "
"""Prefix of the reason if free technicians are moved ahead of the one the request waits for."""
_MOST = 1_000


async def pass_over_assigned(store: Store, request: JobView) -> None:
    """Remove technicians with another request from a queued request's list, if none is free.

    If the list becomes empty, the request is exhausted at once. A parked request with free
    technicians gets those first in its list instead.

    Args:
        request: as just read.
    """
    left = request.cascade.left if request.cascade is not None else ()
    if request.state not in QUEUED or not left:
        return
    if read_request(request.args).assigned is not None:
        # A dispatcher has chosen the technician: the request waits.
        return
    gates = {one.name: one for one in await _gates(store, map(lock_of, left))}
    calls = {one.name: one for one in await _gates(store, map(call_to, left))}
    lets_in = {name: gates[lock_of(name)].open for name in left}
    free = [name for name in left if lets_in[name] and calls[call_to(name)].open]
    if free:
        if request.state is State.PARKED:
            # It is parked at another technician's lock, so a free one does not wake it.
            rest = [name for name in left if name not in free]
            await _edit(store, request, (*free, *rest), FREE_AGAIN + ", ".join(free))
        return
    holders: dict[str, str] = {}
    for name in left:
        if lets_in[name]:
            # The technician is only on the phone.
            continue
        gate = gates[lock_of(name)]
        if not gate.holders:
            # An operator closed this gate, so the request waits until it is open again.
            return
        holders[name] = gate.holders[0].job
    held = await store.read(
        JobsQuery(ids=tuple(dict.fromkeys(holders.values())), limit=_MOST, kind=OFFER)
    )
    has = {one.id: acceptor(one) for one in held.rows}
    assigned = [name for name, holder in holders.items() if has.get(holder) == name]
    if not assigned:
        return
    rest = tuple(name for name in left if name not in assigned)
    await _edit(store, request, rest, PASSED_OVER + ", ".join(assigned))


async def reconsider_parked(store: Store, request: JobView) -> None:
    """Reconsider parked requests for the technicians whose turns in this request have ended.

    Args:
        request: with its runs.
    """
    freed = {one.candidate for one in request.runs if one.ended_at is not None}
    if not freed:
        return
    (lane,) = await store.read(LanesQuery(names=(OFFERS,)))
    if not lane.counts.get(State.PARKED):
        # The listing would scan all jobs of the store.
        return
    query = JobsQuery(kind=OFFER, lane=OFFERS, states=(State.PARKED,), limit=_MOST)
    async for jobs in read_pages(store, query):
        for one in filter(is_request, jobs.rows):
            if one.cascade is not None and not freed.isdisjoint(one.cascade.left):
                await pass_over_assigned(store, one)


async def _edit(store: Store, request: JobView, left: tuple[str, ...], reason: str) -> None:
    # Refused if it was offered or assigned since it was read: `left` would undo that.
    edit = Edit(candidates=left, if_run=request.run, if_args=request.args)
    await act(store, Verb.EDIT, request.id, author=NAME, reason=reason, edit=edit)


async def lock_state(store: Store, technician: str) -> GateState:
    """Return the lock on a technician."""
    (gate,) = await _gates(store, (lock_of(technician),))
    return gate


async def _gates(store: Store, gates: Iterable[str]) -> tuple[GateState, ...]:
    names = tuple(gates)
    return (await store.read(GatesQuery(names=names, limit=min(_MOST, len(names))))).rows


def ref_for(request: JobView, technician: str) -> str | None:
    """Return the reference of a technician's last offer of a request; None if there was none.

    Args:
        request: with its runs.
    """
    if asked_now(request) == technician:
        return ref_of(request)
    runs = [one.run for one in request.runs if one.candidate == technician and one.handed_at]
    return f"{request.id}:{runs[-1]}" if runs else None


async def request_held_by(store: Store, technician: str) -> JobView | None:
    """Return the request that is offered to a technician or that they have; None if none is."""
    gate = await lock_state(store, technician)
    if not gate.holders:
        return None
    return await store.read(JobQuery(id=gate.holders[0].job))
