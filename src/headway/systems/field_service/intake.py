"""Intake: a form becomes one job that is offered to those who are near."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.job import NewJob, derived_id
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.names import LOOK_OVER, OFFER
from headway.systems.field_service.nearby.search import nearby
from headway.systems.field_service.request import Request


async def candidates_for(desk: Desk, request: Request) -> list[str]:
    """Who is to be asked, nearest first; of those as near, the longest idle first.

    Raises:
        StoreUnavailable: the directory is away.
    """
    settings = desk.settings
    found = await nearby(
        desk.directory,
        lat=request.position.lat,
        lon=request.position.lon,
        skills=list(request.skills),
        radius_km=settings.radius_km,
        most=settings.most,
    )
    return [one.id for one in found]


def jobs_for(
    desk: Desk, request: Request, candidates: Sequence[str], *, key: str | None
) -> list[NewJob]:
    """The jobs of a new request: itself, and a look over it.

    The look passes over those who have another request, where all candidates are busy.

    Args:
        desk: of the system.
        request: what is asked for.
        candidates: in the order to be asked.
        key: makes the request one, however often it is sent.
    """
    offer = desk.kind(OFFER).make(
        customer=request.customer,
        position=request.position,
        skills=request.skills,
        urgency=request.urgency,
        address=request.address,
        description=request.description,
        candidates=candidates,
        key=key,
        subject=request.customer.phone,
    )
    look = look_at(desk, offer.id)
    return [offer, look] if candidates else [offer]


def look_at(desk: Desk, request: str, *why: object) -> NewJob:
    """A look over a request, now.

    Args:
        desk: of the system.
        request: its id.
        why: what the look follows from; the same makes one look.
    """
    return desk.kind(LOOK_OVER).make(
        job_id=derived_id(LOOK_OVER, "look", request, *why), subject=request, request=request
    )
