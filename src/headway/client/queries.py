"""Queries of the contract as GET requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from headway.client.calls import HttpCall, Params
from headway.client.replies import read_record
from headway.contract.views import (
    AuditQuery,
    AuditView,
    EntryView,
    FlowsQuery,
    GatesQuery,
    GateState,
    JobQuery,
    JobsQuery,
    JobView,
    LanesQuery,
    LaneView,
    Page,
    Query,
    StatsQuery,
    StatsView,
    TimetableQuery,
    TrailQuery,
    TrailView,
    WaitingFlow,
    WhyQuery,
    WhyView,
    WorkersQuery,
    WorkerView,
)
from headway.core.errors import CallerError


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteQuery:
    """A query of the contract as a GET request.

    Attributes:
        call: the request.
        read: decodes the response.
        missing: whether an unknown job is answered with None.
        whole: whether all pages are read.
    """

    call: HttpCall
    read: Callable[[Any], object]
    missing: bool = False
    whole: bool = False


def remote_query(query: Query[Any], patience_s: float) -> RemoteQuery:  # noqa: C901, PLR0911, PLR0912  (one line for each)
    """Return a query as a GET request.

    Args:
        query: as a store is asked.
        patience_s: for how long it is repeated while the server is away.

    Raises:
        CallerError: the HTTP API does not answer it.
    """

    def get(path: str, *params: tuple[str, object]) -> HttpCall:
        return HttpCall(method="GET", path=path, params=_fields_of(params), patience_s=patience_s)

    match query:
        case JobQuery():
            call = get(job_path(query.id))
            return RemoteQuery(call=call, read=_record(JobView), missing=True)
        case WhyQuery():
            call = get(f"{job_path(query.id)}/why")
            return RemoteQuery(call=call, read=_record(WhyView), missing=True)
        case JobsQuery():
            call = get("/v1/jobs", *_jobs(query))
            return RemoteQuery(call=call, read=_page(JobView), whole=query.ids is not None)
        case FlowsQuery():
            place = ("lane", query.lane) if query.gate is None else ("gate", query.gate)
            asked = (("first", query.first), ("cursor", query.cursor), ("limit", query.limit))
            return RemoteQuery(call=get("/v1/flows", place, *asked), read=_page(WaitingFlow))
        case GatesQuery():
            asked = (("cursor", query.cursor), ("limit", query.limit))
            parked = ("parked", "true" if query.parked else None)
            call = get("/v1/gates", *_each("name", query.names), parked, *asked)
            return RemoteQuery(call=call, read=_page(GateState))
        case LanesQuery():
            call = get("/v1/lanes", *_each("name", query.names))
            return RemoteQuery(call=call, read=_rows(LaneView), whole=True)
        case WorkersQuery():
            return RemoteQuery(call=get("/v1/workers"), read=_rows(WorkerView), whole=True)
        case StatsQuery():
            return RemoteQuery(call=get("/v1/stats"), read=_record(StatsView))
        case TimetableQuery():
            return RemoteQuery(call=get("/v1/timetable"), read=_rows(EntryView), whole=True)
        case TrailQuery():
            asked = (("target", query.target), ("cursor", query.cursor), ("limit", query.limit))
            return RemoteQuery(call=get("/v1/trail", *asked), read=_page(TrailView))
        case AuditQuery():
            call = get("/v1/audit", ("cursor", query.cursor), ("limit", query.limit))
            return RemoteQuery(call=call, read=_record(AuditView))
        case _:
            message = f"a server does not answer this {type(query).__name__}"
            raise CallerError(message, hint="open the store itself for that")


def underway_call(query: JobsQuery) -> HttpCall:
    """Return the request for waiting, parked and running jobs.

    Args:
        query: its lane, tenant, kind, states and limit count.
    """
    params = _fields_of((("underway", "true"), *_jobs(query)))
    return HttpCall(method="GET", path="/v1/jobs", params=params)


def job_path(job: str) -> str:
    """Return the path of a job."""
    return f"/v1/jobs/{quote(job, safe='')}"


def _jobs(query: JobsQuery) -> list[tuple[str, object]]:
    return [
        *_each("id", query.ids),
        ("worker", query.worker),
        ("lane", query.lane),
        ("tenant", query.tenant),
        ("kind", query.kind),
        *_each("state", map(str, query.states) if query.states else None),
        ("key", query.key),
        ("subject", query.subject),
        ("newest", "true" if query.newest else None),
        ("runs", "true" if query.runs else None),
        ("cursor", query.cursor),
        ("limit", query.limit if query.ids is None else len(query.ids)),
    ]


def _each(name: str, values: Iterable[str] | None) -> list[tuple[str, object]]:
    return [(name, value) for value in values or ()]


def _fields_of(params: Iterable[tuple[str, object]]) -> Params:
    return tuple((name, str(value)) for name, value in params if value is not None)


def _record(kind: type[Any]) -> Callable[[Any], object]:
    return lambda reply: read_record(kind, reply)


def _rows(kind: type[Any]) -> Callable[[Any], object]:
    def read(reply: Any) -> object:  # noqa: ANN401  (as JSON says it)
        return tuple(read_record(kind, one) for one in reply["rows"])

    return read


def _page(kind: type[Any]) -> Callable[[Any], object]:
    def read(reply: Any) -> object:  # noqa: ANN401  (as JSON says it)
        rows = tuple(read_record(kind, one) for one in reply["rows"])
        return Page(rows=rows, cursor=reply.get("cursor"))

    return read
