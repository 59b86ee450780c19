"""Reads: the request for a read script, and the view of its reply.

A read script only collects the rows of one snapshot. The functions that all stores share build the
views from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from headway.contract.extensions import ExportChunk
from headway.contract.views import (
    AuditQuery,
    FlowsQuery,
    GatesQuery,
    JobQuery,
    JobsQuery,
    LanesQuery,
    Query,
    SpecsQuery,
    StatsQuery,
    TimetableQuery,
    TokensQuery,
    TrailQuery,
    WhyQuery,
    WorkersQuery,
)
from headway.core.errors import InvariantBroken
from headway.stores.ledger.paging import (
    AT_ONCE,
    MOST_BYTES,
    MOST_EXAMINED,
    check_limit,
    read_place,
)
from headway.stores.ledger.reads.gates import HOLDERS, PARKED
from headway.stores.ledger.reads.jobs import COUNTED, NOTES, check_flows
from headway.stores.ledger.reads.listings import part_of
from headway.stores.ledger.reads.why import CANDIDATES, PLACES
from headway.stores.ledger.tokenchanges import is_token_id
from headway.stores.ledger.verbs import export_chunk, read
from headway.stores.ledger.verbs.moving import ALL_STARTS, read_cursor
from headway.stores.redis.views_ledger import ledger_of

Answer = TypeVar("Answer")

AUDITED = 500
"""Maximum number of rows of each kind per audit script, because it blocks all of Redis."""
_LARGEST = 10**15 - 1
"""Lua represents integers up to this one exactly."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A call of a read script.

    Attributes:
        script: the module and its function.
        request: its argument, without fields that are None.
    """

    script: str
    request: dict[str, Any]


def bounded(query: Query[Answer]) -> Query[Answer]:
    """Return the query; an audit's page is limited to what one script may examine."""
    if isinstance(query, AuditQuery):
        return cast("Query[Answer]", replace(query, limit=min(query.limit, AUDITED)))
    return query


def request_of(query: Query[Any]) -> ReadRequest:
    """Return the request for the rows that a query needs.

    Args:
        query: as returned by `bounded`.

    Raises:
        InvalidValue: the page is too large, or the cursor belongs to another listing.
        InvariantBroken: there is no script for this query.
    """
    made = _REQUESTS.get(type(query))
    if made is None:
        message = f"{type(query).__name__} has no script"
        raise InvariantBroken(message)
    script, request = made
    return ReadRequest(
        script, {key: value for key, value in request(query).items() if value is not None}
    )


def answer(query: Query[Answer], reply: Mapping[str, Any]) -> Answer:
    """Return the view of a script's reply.

    Args:
        query: as returned by `bounded`.
    """
    return read(ledger_of(reply), query)


def chunk_request(cursor: str | None) -> ReadRequest:
    """Return the request for a chunk's rows."""
    part, after, limit = read_cursor(cursor)
    request = {"part": part, "limit": limit, "most": ALL_STARTS}
    return ReadRequest(
        "reads.read_pages.chunk", request | ({} if after is None else {"after": after})
    )


def chunk(cursor: str | None, reply: Mapping[str, Any]) -> ExportChunk:
    """Return the chunk in a script's reply."""
    return export_chunk(ledger_of(reply), cursor)


def _job(query: JobQuery) -> dict[str, Any]:
    return {"id": query.id, "notes": NOTES}


def _jobs(query: JobsQuery) -> dict[str, Any]:
    check_limit(query.limit)
    by_key = query.key is not None and query.ids is None
    about = query.subject is not None
    return {
        "ids": query.ids,
        "key": query.key,
        "subject": query.subject,
        "lane": query.lane,
        "tenant": query.tenant or "" if by_key or about else query.tenant,
        "kind": query.kind,
        "worker": query.worker,
        "states": [str(one) for one in query.states] or None,
        "runs": query.runs or None,
        "notes": NOTES if query.trail else None,
        "newest": query.newest or None,
        "after": read_place(query.cursor, _LARGEST),
        "limit": query.limit,
        "most_examined": MOST_EXAMINED,
        "most_bytes": MOST_BYTES,
        "at_once": AT_ONCE,
    }


def _why(query: WhyQuery) -> dict[str, Any]:
    return {"id": query.id, "candidates": CANDIDATES, "places": PLACES, **_OF_GATES}


def _flows(query: FlowsQuery) -> dict[str, Any]:
    return {
        "after": check_flows(query),
        "lane": query.lane,
        "gate": query.gate,
        "first": query.first,
        "limit": query.limit,
        "counted": COUNTED,
    }


_OF_GATES = {"holders": HOLDERS, "parked": PARKED}


def _gates(query: GatesQuery) -> dict[str, Any]:
    return {
        "names": query.names,
        "only_parked": query.parked or None,
        "after": query.cursor or "",
        "limit": query.limit,
        **_OF_GATES,
    }


def _by_name(query: LanesQuery | TimetableQuery) -> dict[str, Any]:
    return {"names": query.names}


def _tokens(query: TokensQuery) -> dict[str, Any]:
    if query.ids is None:
        return {}
    return {"ids": list({token: None for token in query.ids if is_token_id(token)})}


def _trail(query: TrailQuery) -> dict[str, Any]:
    return {
        "target": query.target,
        "before": read_place(query.cursor, _LARGEST),
        "limit": query.limit,
    }


def _audit(query: AuditQuery) -> dict[str, Any]:
    part, after = part_of(query)
    return {"part": part, "after": after, "limit": query.limit}


def _nothing(_query: Query[Any]) -> dict[str, Any]:
    return {}


_REQUESTS: dict[type[Query[Any]], tuple[str, Callable[..., dict[str, Any]]]] = {
    JobQuery: ("reads.read_jobs.job", _job),
    JobsQuery: ("reads.read_jobs.page", _jobs),
    WhyQuery: ("reads.read_jobs.why", _why),
    FlowsQuery: ("reads.read_jobs.flows", _flows),
    GatesQuery: ("reads.read_store.gates", _gates),
    SpecsQuery: ("reads.read_store.specs", _nothing),
    LanesQuery: ("reads.read_store.lanes", _by_name),
    WorkersQuery: ("reads.read_store.workers", _nothing),
    TimetableQuery: ("reads.read_store.timetable", _by_name),
    TokensQuery: ("reads.read_store.tokens", _tokens),
    TrailQuery: ("reads.read_store.trail", _trail),
    StatsQuery: ("reads.read_store.stats", _nothing),
    AuditQuery: ("reads.read_pages.audit", _audit),
}
