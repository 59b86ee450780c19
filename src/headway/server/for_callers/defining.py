"""Definitions over HTTP: listed as of a revision, and changed only if nobody did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Response

from headway.contract.definitions import DefineRequest, Item
from headway.contract.views import StatsView
from headway.server.access.caller import Caller
from headway.server.asking import etag, revision_of
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply
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
    """Makes changes that hold together or not at all.

    Args:
        service: whose store.
        caller: stands on the trail.
        items: the changes, in this order.
        reason: why.
        if_match: the revision that the caller knows, as the header says it; None for any.

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
    """The reply of a listing, with the revision that it is of as its ETag.

    Args:
        stats: read before the rows, so that they are no older than its revision.
        rows: of the page.
        cursor: of the next one.
    """
    found = {"rows": rows, "cursor": cursor, "revision": stats.revision, "now": stats.now}
    return answer(found, headers=etag(stats.revision))


def defined(revision: int, **more: object) -> Response:
    """The reply of a change, with the revision as its ETag."""
    return answer({"revision": revision, **more}, headers=etag(revision))
