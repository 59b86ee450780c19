"""Passing over: when all who are left are busy, nobody waits for those who have another job.

Somebody with an open offer is free again within minutes, and is waited for. Somebody who has
accepted another request may be busy for hours.
"""

from __future__ import annotations

import uuid

from headway.contract.operate import ActRequest, Edit, Verb
from headway.contract.store import Store
from headway.contract.views import GatesQuery, GateState, JobsQuery, JobView
from headway.core.state import QUEUED
from headway.systems.field_service.names import NAME, OFFER, lock_of
from headway.systems.field_service.standing import acceptor

PASSED_OVER = "passed over, for they have another request: "
"""With this begins the reason on the trail."""
_MOST = 1_000


async def pass_over_assigned(store: Store, request: JobView) -> None:
    """Takes those off a queued request's list who have another request, if nobody is free.

    With nobody left the request is exhausted at once.

    Args:
        store: where the jobs are.
        request: as it was read just now.
    """
    left = request.cascade.left if request.cascade is not None else ()
    if request.state not in QUEUED or not left:
        return
    gates = {one.name: one for one in await _gates(store, left)}
    holders: dict[str, str] = {}
    for name in left:
        gate = gates.get(lock_of(name))
        if gate is None or gate.open or not gate.holders:
            # He may be free, or an operator closed his gate: the request waits for him.
            return
        holders[name] = gate.holders[0].job
    held = await store.read(
        JobsQuery(ids=tuple(dict.fromkeys(holders.values())), limit=_MOST, kind=OFFER)
    )
    has = {one.id: acceptor(one) for one in held.rows}
    assigned = [name for name in left if has.get(holders[name]) == name]
    if not assigned:
        return
    rest = tuple(name for name in left if name not in assigned)
    await store.act(
        ActRequest(
            request=str(uuid.uuid4()),
            ids=(request.id,),
            verb=Verb.EDIT,
            edit=Edit(candidates=rest),
            author=NAME,
            reason=PASSED_OVER + ", ".join(assigned),
        )
    )


async def lock_state(store: Store, technician: str) -> GateState | None:
    """The lock of a technician as it stands; None if he never had an offer."""
    return next(iter(await _gates(store, (technician,))), None)


async def _gates(store: Store, technicians: tuple[str, ...]) -> tuple[GateState, ...]:
    names = tuple(map(lock_of, technicians))
    return (await store.read(GatesQuery(names=names, limit=min(_MOST, len(names))))).rows
