"""The position of an address, asked of a service that speaks as Nominatim does."""

from __future__ import annotations

import httpx
import msgspec

from headway.core.errors import InvalidValue, StoreUnavailable
from headway.systems.field_service.request import Position

TIMEOUT_S = 3.0
AGENT = "headway"


class _Place(msgspec.Struct):
    lat: float
    lon: float


_places = msgspec.json.Decoder(list[_Place], strict=False)


async def find_position(url: str | None, address: str) -> Position:
    """The position of an address.

    Args:
        url: of the service; `q`, `format` and `limit` are added to its query. None for none.
        address: as people write it.

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
        async with httpx.AsyncClient(timeout=TIMEOUT_S, headers={"User-Agent": AGENT}) as http:
            reply = await http.get(httpx.URL(url).copy_merge_params(query))
            reply.raise_for_status()
        places = _places.decode(reply.content)
    except (httpx.HTTPError, msgspec.MsgspecError) as error:
        message = "the geocoder does not answer"
        raise StoreUnavailable(message, hint=f"{type(error).__name__}; send it again") from error
    if not places:
        message = f"nobody knows where {address[:80]!r} is"
        raise InvalidValue(message, hint="write it otherwise, or give `position`")
    return Position(lat=places[0].lat, lon=places[0].lon)
