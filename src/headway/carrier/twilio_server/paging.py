"""Lists in pages, as Twilio gives them.

Source: Twilio, "Paging through list resources".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from headway.carrier.twilio_server.asked import Fields
from headway.carrier.twilio_server.shapes import Shape
from headway.server.hooks.request import read_form

PAGING = ("Page", "PageSize", "PageToken")
"""The fields of the query that choose a page."""

_USUAL, _MOST = 50, 1_000

One = TypeVar("One")


def page_of(
    request: Request,
    asked: Fields,
    name: str,
    found: Sequence[One],
    shape: Callable[[One], Shape],
) -> Shape:
    """One page of a list.

    Args:
        request: asks for it.
        asked: its query.
        name: under which the rows stand.
        found: all rows.
        shape: of a row.
    """
    size = asked.number("PageSize", _USUAL, _MOST) or _USUAL
    page = asked.number("Page", 0, 10_000_000)
    start = page * size
    rows = found[start : start + size]

    def uri(number: int) -> str:
        kept = [
            pair for pair in read_form(request.url.query) if pair[0] not in {"Page", "PageSize"}
        ]
        query = urlencode([*kept, ("PageSize", str(size)), ("Page", str(number))])
        return f"{request.url.path}?{query}"

    return {
        name: [shape(one) for one in rows],
        "end": max(start, start + len(rows) - 1),
        "first_page_uri": uri(0),
        "next_page_uri": uri(page + 1) if start + size < len(found) else None,
        "page": page,
        "page_size": size,
        "previous_page_uri": uri(page - 1) if page else None,
        "start": start,
        "uri": uri(page),
    }
