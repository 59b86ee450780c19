"""Shared by many routes: pages and their cursors, Idempotency-Key, and changes with If-Match."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Header, Query, Response
from pydantic import Field

from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DefineRequest,
    Item,
    ResetGate,
    SetGate,
)
from headway.contract.views import Page, StatsView
from headway.core.errors import InvalidValue
from headway.core.naming import whole_number
from headway.server.bodies.base import QueryModel
from headway.server.bodies.definitions import UntilBody
from headway.server.caller import Caller
from headway.server.finding import MOST_ROWS
from headway.server.replies import answer, reply
from headway.server.service import Service

Row = TypeVar("Row")

Limit = Annotated[int, Field(ge=1, le=MOST_ROWS, description="Maximum number of rows.")]
Cursor = Annotated[
    str | None,
    Field(max_length=4_000, description="Cursor from the previous page; omit it for the first."),
]

RepeatKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Makes repeats of this request have the effect of a single one. Any text of up "
        "to 255 characters, such as a UUID.",
        min_length=1,
        max_length=255,
    ),
]

_REPEAT_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_NO_CURSOR = "the cursor does not belong to this listing"
_CURSOR = "pass the cursor from the previous page"

_TAG = re.compile(r'(?:W/)?"(\d{1,18})"|(\d{1,18})', re.ASCII)
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='Revision of the definitions that you know, such as `"17"`; if it is not the '
        "current one, nothing is changed and the reply is 409.",
        examples=['"17"'],
    ),
]


class PageQuery(QueryModel):
    """Which page of a listing."""

    limit: Limit = 100
    cursor: Cursor = None


WhichPage = Annotated[PageQuery, Query()]


def check_repeat_key(key: str) -> str:
    """Validate the value of an Idempotency-Key.

    Raises:
        InvalidValue: the key is not 1 to 255 visible ASCII characters.
    """
    if _REPEAT_KEY.fullmatch(key) is None:
        message = "the Idempotency-Key is not valid"
        raise InvalidValue(message, hint="use 1 to 255 visible ASCII characters, such as a UUID")
    return key


def revision_of(if_match: str | None) -> int | None:
    """Return the revision in an If-Match header; None for no header or `*`.

    Raises:
        InvalidValue: the header is not a revision.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    found = _TAG.fullmatch(if_match.strip())
    if found is None:
        message = "If-Match is not a revision of the definitions"
        raise InvalidValue(message, hint='pass the ETag, such as "17"')
    return int(found[1] or found[2])


def etag(revision: int) -> dict[str, str]:
    """Return the ETag header for a revision of the definitions."""
    return {"ETag": f'"{revision}"'}


def encode_cursor(cursor: str | None) -> str | None:
    """Encode a store's cursor so that it is safe in a URL."""
    return None if cursor is None else urlsafe_b64encode(cursor.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """Decode a cursor from `encode_cursor`.

    Raises:
        InvalidValue: the cursor is not from `encode_cursor`.
    """
    if cursor is None:
        return None
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (Error, ValueError):
        raise InvalidValue(_NO_CURSOR, hint=_CURSOR) from None
    if encode_cursor(text) != cursor or "\0" in text:
        raise InvalidValue(_NO_CURSOR, hint=_CURSOR)
    return text


def check_number_cursor(cursor: str | None) -> str | None:
    """Validate the cursor of a listing whose cursors are numbers.

    Raises:
        InvalidValue: the cursor is not a number.
    """
    if cursor is not None and whole_number(cursor, digits=18) is None:
        raise InvalidValue(_NO_CURSOR, hint=_CURSOR)
    return cursor


def page_of(rows: Sequence[Row], name: Callable[[Row], str], asked: PageQuery) -> Page[Row]:
    """Return a page, by name, of rows that a store returns all at once."""
    after = decode_cursor(asked.cursor)
    left = sorted((one for one in rows if after is None or name(one) > after), key=name)
    cut = left[: asked.limit]
    return Page(
        rows=tuple(cut), cursor=encode_cursor(name(cut[-1])) if len(left) > len(cut) else None
    )


DEFINED = reply(
    "Defined",
    "A change that has been made.",
    revision=(int, "Revision of the definitions after the change."),
)


async def define(
    service: Service,
    caller: Caller,
    *items: Item,
    reason: str = "",
    if_match: str | None = None,
    **more: object,
) -> Response:
    """Apply changes to the definitions, all or none; the reply has the revision as its ETag.

    Args:
        more: fields of the reply in addition to the revision.

    Raises:
        RevisionConflict: the definitions were changed in the meantime; nothing was written.
        CallerError: a change is refused; nothing was written.
    """
    request = DefineRequest(
        items=items, author=caller.name, reason=reason, revision=revision_of(if_match)
    )
    revision = await service.store.define(request)
    if any(isinstance(one, DeclareGate | SetGate | ResetGate) for one in items):
        service.gates.forget()
    return answer({"revision": revision, **more}, headers=etag(revision))


async def close_gate(
    service: Service, caller: Caller, gate: str, body: UntilBody, if_match: str | None = None
) -> Response:
    """Close a gate, indefinitely or until a given time.

    Raises:
        Forbidden: the caller may not change this gate.
        InvalidValue: the time is not in the future; nothing was written.
        RevisionConflict: the definitions were changed in the meantime; nothing was written.
        UnknownGate: there is no such gate; nothing was written.
    """
    caller.check_gate(gate)
    until_at = body.resolved(await service.now())
    return await define(
        service,
        caller,
        CloseGate(name=gate, until_at=until_at, reason=body.reason),
        reason=body.reason,
        if_match=if_match,
        gate=gate,
        until_at=until_at,
    )


def listed(stats: StatsView, rows: Sequence[object], cursor: str | None) -> Response:
    """Return the reply of a listing, with the revision as its ETag."""
    found = {"rows": rows, "cursor": cursor, "revision": stats.revision, "now": stats.now}
    return answer(found, headers=etag(stats.revision))
