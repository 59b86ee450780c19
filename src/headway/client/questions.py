"""Questions: which of those that a store answers a server answers too, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from headway.client.calls import Call, Params
from headway.client.read_record import read_record
from headway.contract.views import (
    AuditQuery,
    AuditView,
    EntryView,
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
    WhyQuery,
    WhyView,
    WorkersQuery,
    WorkerView,
)
from headway.core.errors import CallerError


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question as a server is asked it.

    Attributes:
        call: asks it.
        read: makes the answer of what the server says.
        missing: whether "there is no such job" answers it, with None.
        whole: whether all pages make the answer.
    """

    call: Call
    read: Callable[[Any], object]
    missing: bool = False
    whole: bool = False


def question(query: Query[Any], patience_s: float) -> Question:  # noqa: C901, PLR0911, PLR0912  (one line for each)
    """The question that a query asks of a server.

    Args:
        query: as a store is asked.
        patience_s: for how long it is repeated while the server is away.

    Raises:
        CallerError: only a store can be asked that.
    """

    def get(path: str, *params: tuple[str, object]) -> Call:
        return Call(method="GET", path=path, params=_said(params), patience_s=patience_s)

    match query:
        case JobQuery():
            call = get(job_path(query.id))
            return Question(call=call, read=_one(JobView), missing=True)
        case WhyQuery():
            call = get(f"{job_path(query.id)}/why")
            return Question(call=call, read=_one(WhyView), missing=True)
        case JobsQuery() if query.ids is None:
            return Question(call=get("/v1/jobs", *_jobs(query)), read=_page(JobView))
        case GatesQuery():
            names = _each("name", query.names)
            call = get("/v1/gates", *names, ("cursor", query.cursor), ("limit", query.limit))
            return Question(call=call, read=_page(GateState))
        case LanesQuery():
            return Question(
                call=get("/v1/lanes", *_each("name", query.names)), read=_rows(LaneView)
            )
        case WorkersQuery():
            return Question(call=get("/v1/workers"), read=_rows(WorkerView), whole=True)
        case StatsQuery():
            return Question(call=get("/v1/stats"), read=_one(StatsView))
        case TimetableQuery():
            return Question(call=get("/v1/timetable"), read=_rows(EntryView), whole=True)
        case TrailQuery():
            asked = (("target", query.target), ("cursor", query.cursor), ("limit", query.limit))
            return Question(call=get("/v1/trail", *asked), read=_page(TrailView))
        case AuditQuery():
            call = get("/v1/audit", ("cursor", query.cursor), ("limit", query.limit))
            return Question(call=call, read=_one(AuditView))
        case _:
            message = f"a server does not answer {type(query).__name__}"
            raise CallerError(message, hint="open the store itself for that")


def job_path(job: str) -> str:
    """The path of a job."""
    return f"/v1/jobs/{quote(job, safe='')}"


def _jobs(query: JobsQuery) -> list[tuple[str, object]]:
    return [
        ("lane", query.lane),
        ("tenant", query.tenant),
        ("kind", query.kind),
        *_each("state", map(str, query.states) if query.states else None),
        ("key", query.key),
        ("subject", query.subject),
        ("newest", "true" if query.newest else None),
        ("runs", "true" if query.runs else None),
        ("cursor", query.cursor),
        ("limit", query.limit),
    ]


def _each(name: str, values: Iterable[str] | None) -> list[tuple[str, object]]:
    return [(name, value) for value in values or ()]


def _said(params: Iterable[tuple[str, object]]) -> Params:
    return tuple((name, str(value)) for name, value in params if value is not None)


def _one(kind: type[Any]) -> Callable[[Any], object]:
    return lambda said: read_record(kind, said)


def _rows(kind: type[Any]) -> Callable[[Any], object]:
    def read(said: Any) -> object:  # noqa: ANN401  (as JSON says it)
        return tuple(read_record(kind, one) for one in said["rows"])

    return read


def _page(kind: type[Any]) -> Callable[[Any], object]:
    def read(said: Any) -> object:  # noqa: ANN401  (as JSON says it)
        rows = tuple(read_record(kind, one) for one in said["rows"])
        return Page(rows=rows, cursor=said.get("cursor"))

    return read
