"""The contract's queries as GET requests, and the decoding of replies into its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, get_args
from urllib.parse import quote

import msgspec

from headway.client.calls import HttpCall, Params
from headway.contract.claims import Claimed, ClaimReply
from headway.contract.definitions import EntrySpec
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
from headway.core.errors import CallerError, StoreUnavailable
from headway.core.job import DEFAULT_POLICY, JobPolicy, NewJob
from headway.core.records import field_names
from headway.core.timetable.fires import MisfirePolicy
from headway.core.timetable.schedule import Schedule

Record = TypeVar("Record")

_encode = msgspec.json.Encoder().encode
_EMBEDDED = ("args", "progress", "result")
"""Fields of a job that are JSON: bytes in a record, embedded in a reply."""


def read_record(kind: type[Record], fields: Any) -> Record:  # noqa: ANN401  (any JSON)
    """Decode a record of the contract.

    Args:
        kind: a dataclass or named tuple of the contract.
        fields: as JSON. Unknown fields are ignored, because the server may be newer; missing fields
            take their defaults.

    Raises:
        StoreUnavailable: it cannot be decoded: the server has another version, or is another
            program.
    """
    try:
        if kind is EntryView:
            fields = {**fields, "spec": _entry_spec(fields["spec"])}
            return kind(**{name: fields[name] for name in field_names(kind) if name in fields})
        if kind is JobView:
            fields = _with_bytes(fields)
        return msgspec.convert(fields, kind, builtin_types=(bytes,))
    except (msgspec.ValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        message = f"the server's {kind.__name__} cannot be read: {error}"
        raise StoreUnavailable(message, hint="use the same version for server and client") from None


def _with_bytes(job: Mapping[str, Any]) -> Mapping[str, Any]:
    embedded = {name: _encode(job[name]) for name in _EMBEDDED if job.get(name) is not None}
    return {**job, **embedded}


def _entry_spec(spec: Mapping[str, Any]) -> EntrySpec:
    """Decode the part of an entry that has a union of records, which msgspec refuses."""
    schedules = {frozenset(field_names(one)): one for one in get_args(Schedule)}
    read: dict[str, Any] = {
        **spec,
        "schedule": msgspec.convert(spec["schedule"], schedules[frozenset(spec["schedule"])]),
        "job": msgspec.convert(_with_bytes(spec["job"]), NewJob, builtin_types=(bytes,)),
        "misfire": MisfirePolicy(spec.get("misfire", MisfirePolicy.ONCE)),
    }
    return EntrySpec(**{name: read[name] for name in field_names(EntrySpec) if name in read})


class JobReply(msgspec.Struct, kw_only=True):
    """A job of a claim's response."""

    id: str
    run: int
    kind: str
    lane: str
    args: msgspec.Raw
    attempt: int = 1
    stage: str = ""
    tenant: str = ""
    subject: str | None = None
    priority: int = 0
    due_at: int = 0
    policy: msgspec.Raw = msgspec.Raw(b"{}")
    gated: bool = False
    members: dict[str, str] = {}
    candidate: str = ""
    ref: str = ""
    signal_url: str | None = None

    def claimed(self) -> Claimed:
        """Return it as the contract's record."""
        return Claimed(
            self.id,
            self.run,
            self.attempt,
            self.kind,
            self.stage,
            self.lane,
            self.tenant,
            self.subject,
            bytes(self.args),
            self.priority,
            self.due_at,
            _policy(bytes(self.policy)),
            self.gated,
            self.members,
            self.candidate,
        )


class ClaimResponse(msgspec.Struct, kw_only=True):
    """The response to a claim."""

    jobs: list[JobReply]
    now: int
    request: int = 0
    lease_until: int | None = None
    next_at: int | None = None
    again: bool = False
    after: dict[str, int] = {}

    def reply(self, seen: int = 0) -> ClaimReply:
        """Return it as the contract's record."""
        return ClaimReply(
            jobs=[job.claimed() for job in self.jobs],
            now=self.now,
            # A poll that never claimed extended no lease.
            lease_until=self.now if self.lease_until is None else self.lease_until,
            next_at=self.next_at,
            again=self.again,
            after=self.after,
            seen=seen,
        )


_decode = msgspec.json.Decoder(ClaimResponse).decode


def read_claim(body: bytes) -> ClaimResponse:
    """Decode the response to a claim.

    Raises:
        StoreUnavailable: it is not the response to a claim.
    """
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"the server's claim cannot be read: {error}"
        raise StoreUnavailable(
            message, hint="is this a Headway server of the same version?"
        ) from None


@lru_cache(maxsize=1024)
def _policy(fields: bytes) -> JobPolicy:
    policy = read_record(JobPolicy, msgspec.json.decode(fields))
    return DEFAULT_POLICY if policy == DEFAULT_POLICY else policy


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteQuery:
    """A query of the contract as a GET request.

    Attributes:
        missing: whether the result is None for an unknown job.
        whole: whether all pages are read.
    """

    call: HttpCall
    read: Callable[[Any], object]
    missing: bool = False
    whole: bool = False


_LARGEST = ("limit", 1_000)
"""The largest page: for each page of these listings, a server reads all rows."""


def remote_query(query: Query[Any], patience_s: float) -> RemoteQuery:  # noqa: C901, PLR0911, PLR0912  (one line for each)
    """Return a query as a GET request.

    Raises:
        CallerError: the HTTP API does not support the query.
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
            page = (("first", query.first), ("cursor", query.cursor), ("limit", query.limit))
            return RemoteQuery(call=get("/v1/flows", place, *page), read=_page(WaitingFlow))
        case GatesQuery():
            page = (("cursor", query.cursor), ("limit", query.limit))
            parked = ("parked", "true" if query.parked else None)
            call = get("/v1/gates", *_each("name", query.names), parked, *page)
            return RemoteQuery(call=call, read=_page(GateState))
        case LanesQuery():
            call = get("/v1/lanes", *_each("name", query.names), _LARGEST)
            return RemoteQuery(call=call, read=_rows(LaneView), whole=True)
        case WorkersQuery():
            call = get("/v1/workers", _LARGEST)
            return RemoteQuery(call=call, read=_rows(WorkerView), whole=True)
        case StatsQuery():
            return RemoteQuery(call=get("/v1/stats"), read=_record(StatsView))
        case TimetableQuery():
            # No route lists only some entries.
            read = _rows(EntryView, query.names)
            return RemoteQuery(call=get("/v1/timetable"), read=read, whole=True)
        case TrailQuery():
            page = (("target", query.target), ("cursor", query.cursor), ("limit", query.limit))
            return RemoteQuery(call=get("/v1/trail", *page), read=_page(TrailView))
        case AuditQuery():
            call = get("/v1/audit", ("cursor", query.cursor), ("limit", query.limit))
            return RemoteQuery(call=call, read=_record(AuditView))
        case _:
            message = f"the HTTP API does not support this {type(query).__name__}"
            raise CallerError(message, hint="open the store directly instead")


def underway_call(query: JobsQuery) -> HttpCall:
    """Return the request for waiting, parked and running jobs.

    Args:
        query: only its lane, tenant, kind, states and limit are used.
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


def _rows(kind: type[Any], names: Sequence[str] | None = None) -> Callable[[Any], object]:
    def read(reply: Any) -> object:  # noqa: ANN401  (any JSON)
        rows = (one for one in reply["rows"] if names is None or one["name"] in names)
        return tuple(read_record(kind, one) for one in rows)

    return read


def _page(kind: type[Any]) -> Callable[[Any], object]:
    def read(reply: Any) -> object:  # noqa: ANN401  (any JSON)
        rows = tuple(read_record(kind, one) for one in reply["rows"])
        return Page(rows=rows, cursor=reply.get("cursor"))

    return read
