"""Changing definitions over HTTP: under a revision, with the revision as the ETag."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Response

from headway.contract.definitions import DefineRequest, Item
from headway.contract.views import StatsView
from headway.server.access.caller import Caller
from headway.server.paging import etag, revision_of
from headway.server.replies.reply import answer, reply
from headway.server.service import Service

DEFINED = reply(
    "Defined", "A change that holds.", revision=(int, "Of the definitions, after the change.")
)


async def define(
    service: Service,
    caller: Caller,
    *items: Item,
    reason: str = "",
    if_match: str | None = None,
) -> int:
    """Make changes that hold together or not at all.

    Returns:
        The revision of the definitions now.

    Raises:
        RevisionConflict: they were changed meanwhile; nothing was written.
        CallerError: a change is refused; nothing was written.
    """
    request = DefineRequest(
        items=items, author=caller.name, reason=reason, revision=revision_of(if_match)
    )
    revision = await service.store.define(request)
    service.gates.forget()
    return revision


def listed(stats: StatsView, rows: Sequence[object], cursor: str | None) -> Response:
    """Return the reply of a listing, with the revision that it is of as its ETag."""
    found = {"rows": rows, "cursor": cursor, "revision": stats.revision, "now": stats.now}
    return answer(found, headers=etag(stats.revision))


def defined(revision: int, **more: object) -> Response:
    """Return the reply of a change, with the revision as its ETag."""
    return answer({"revision": revision, **more}, headers=etag(revision))
