"""Intake: turns a form into one job, to be offered to nearby technicians."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import httpx
import msgspec

from headway.core.errors import InvalidValue, StoreUnavailable
from headway.core.job import NewJob
from headway.systems.field_service.context import FieldContext
from headway.systems.field_service.nearby import nearby
from headway.systems.field_service.request import OFFER, PRIORITIES, Position, Request
from headway.systems.telephony.http import read_bounded

TIMEOUT_S = 3.0
"""Limit for the whole reply, not for each read."""
MOST_BYTES = 1_000_000
AGENT = "headway"


class _Place(msgspec.Struct):
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90)]
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180)]


_places = msgspec.json.Decoder(list[_Place], strict=False)


async def find_position(url: str | None, address: str) -> Position:
    """Return the position of an address.

    Args:
        url: URL of the geocoder; `q`, `format` and `limit` are added to its query. None for no
            geocoder.

    Raises:
        InvalidValue: there is no geocoder, or it does not find the address.
        StoreUnavailable: the geocoder fails or sends an invalid reply; nothing was written.

    Source:
        The search API of Nominatim.
    """
    if url is None:
        message = "the request has an address but no position, and no geocoder is configured"
        raise InvalidValue(message, hint="pass `position`, or set [field_service] geocoder_url")
    query = {"q": address, "format": "jsonv2", "limit": "1"}
    try:
        places = _places.decode(await _reply(httpx.URL(url).copy_merge_params(query)))
    except (httpx.HTTPError, msgspec.MsgspecError, TimeoutError) as error:
        message = "the geocoder is unavailable"
        raise StoreUnavailable(message, hint=f"{type(error).__name__}; try again") from error
    if not places:
        message = f"{address[:80]!r} was not found"
        raise InvalidValue(message, hint="write the address differently, or pass `position`")
    return Position(lat=places[0].lat, lon=places[0].lon)


async def _reply(url: httpx.URL) -> bytes:
    """Return the body of a 2xx reply.

    Raises:
        TimeoutError: the reply was not complete in time.
        HTTPError: there is no reply, it is not 2xx, or it is too long.
    """
    async with (
        asyncio.timeout(TIMEOUT_S),
        httpx.AsyncClient(timeout=TIMEOUT_S, headers={"User-Agent": AGENT}) as http,
        http.stream("GET", url) as reply,
    ):
        reply.raise_for_status()
        return await read_bounded(reply, MOST_BYTES)


async def candidates_for(context: FieldContext, request: Request) -> list[str]:
    """Return the technicians to ask, nearest first; at the same distance the longest idle first."""
    settings = context.settings
    found = await nearby(
        context.directory,
        lat=request.position.lat,
        lon=request.position.lon,
        skills=list(request.skills),
        radius_km=settings.radius_km,
        most=settings.most,
    )
    return [one.id for one in found]


def jobs_for(
    context: FieldContext, request: Request, candidates: Sequence[str], *, key: str | None
) -> list[NewJob]:
    """Return the jobs of a new request: the request, and a review of it if it has candidates.

    The review passes over candidates who have another request if all candidates are busy.

    Args:
        candidates: in the order to ask.
        key: idempotency key; None for none.
    """
    offer = context.app.kind(OFFER).make(
        customer=request.customer,
        position=request.position,
        skills=request.skills,
        urgency=request.urgency,
        address=request.address,
        description=request.description,
        candidates=candidates,
        key=key,
        subject=request.customer.phone,
        priority=PRIORITIES[request.urgency],
    )
    review = review_now(context, offer.id)
    return [offer, review] if candidates else [offer]


def review_now(context: FieldContext, request: str, *why: object) -> NewJob:
    """Return a job that reviews a request now.

    Args:
        why: the cause; the same cause makes the same job.
    """
    return context.review_job(request, "look", request, *why)
