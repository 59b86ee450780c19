"""Whose offer is meant: the one that a technician is asked about now, or was asked last."""

from __future__ import annotations

from headway.contract.store import Store
from headway.contract.views import JobQuery, JobView
from headway.systems.field_service.passing_over import lock_state
from headway.systems.field_service.standing import asked_now


def ref_for(request: JobView, technician: str) -> str | None:
    """The reference of the offer that a technician was last made about a request.

    Args:
        request: with its runs.
        technician: his id.

    Returns:
        The reference; None if he was never asked.
    """
    if asked_now(request) == technician:
        return f"{request.id}:{request.run}"
    runs = [one.run for one in request.runs if one.candidate == technician and one.handed_at]
    return f"{request.id}:{runs[-1]}" if runs else None


async def request_held_by(store: Store, technician: str) -> JobView | None:
    """The request that a technician is asked about now, or has; None if there is none."""
    gate = await lock_state(store, technician)
    if gate is None or not gate.holders:
        return None
    return await store.read(JobQuery(id=gate.holders[0].job))
