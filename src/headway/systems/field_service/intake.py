"""Intake: a form becomes one job that is offered to those who are near."""

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
from headway.systems.field_service.request import OFFER, Position, Request
from headway.systems.telephony.wire import read_bounded

TIMEOUT_S = 3.0
"""For the whole reply, and not for each of its parts."""
MOST_BYTES = 1_000_000
AGENT = "headway"


class _Place(msgspec.Struct):
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90)]
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180)]


_places = msgspec.json.Decoder(list[_Place], strict=False)


async def find_position(url: str | None, address: str) -> Position:
    """Return the position of an address.

    Args:
        url: of the service; `q`, `format` and `limit` are added to its query. None for none.

    Raises:
        InvalidValue: there is no service, or it knows no such address.
        StoreUnavailable: the service does not answer as it should; nothing was written.

    Source:
        The search API of Nominatim.
    """
    if url is None:
        message = "the request has an address and no position, and nothing here finds positions"
        raise InvalidValue(message, hint="give `position`, or set [field_service] geocoder_url")
    query = {"q": address, "format": "jsonv2", "limit": "1"}
    try:
        places = _places.decode(await _reply(httpx.URL(url).copy_merge_params(query)))
    except (httpx.HTTPError, msgspec.MsgspecError, TimeoutError) as error:
        message = "the geocoder does not answer"
        raise StoreUnavailable(message, hint=f"{type(error).__name__}; send it again") from error
    if not places:
        message = f"{address[:80]!r} was not found"
        raise InvalidValue(message, hint="write it otherwise, or give `position`")
    return Position(lat=places[0].lat, lon=places[0].lon)


async def _reply(url: httpx.URL) -> bytes:
    """Return the body of a reply of 2xx.

    Raises:
        TimeoutError: it is not there in time.
        HTTPError: it does not end, or there is none.
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
    """Return the jobs of a new request: itself, and a look over it.

    The look passes over those who have another request, where all candidates are busy.

    Args:
        candidates: in the order to be asked.
        key: makes the request one, however often it is sent.
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
    )
    look = look_at(context, offer.id)
    return [offer, look] if candidates else [offer]


def look_at(context: FieldContext, request: str, *why: object) -> NewJob:
    """Return a look over a request, now.

    Args:
        why: what the look follows from; the same makes one look.
    """
    return context.look_over(request, "look", request, *why)
