"""Definitions as a server is told them: one call for each, in their order."""

from __future__ import annotations

from typing import assert_never
from urllib.parse import quote

from headway.client.calls import Call, Method
from headway.client.fields import Fields, filled
from headway.client.job_body import job_body
from headway.contract.definitions import (
    CloseGate,
    DeclareEntry,
    DeclareGate,
    DeclareLane,
    EnableEntry,
    EntrySpec,
    Item,
    LaneSpec,
    OpenGate,
    RemoveEntry,
    ResetGate,
    ResetLane,
    SetGate,
    SetLane,
)
from headway.core.errors import CallerError
from headway.core.gates.hours import HoursSpec, format_spans
from headway.core.gates.spec import GateKind, GateSpec
from headway.core.local_time import format_days
from headway.core.timetable.schedule import Every
from headway.core.timetable.text import format_schedule

DECLARED = (DeclareGate, DeclareLane, DeclareEntry)
"""What code says, which an operator's values outlive."""

_ONCE = frozenset({"id", "due", "expires", "key"})
"""What a job that recurs does not say."""


def definition(item: Item, reason: str, patience_s: float) -> Call:  # noqa: C901, PLR0911, PLR0912  (one line for each)
    """The call that tells a definition.

    Args:
        item: what is declared, set or reset.
        reason: why.
        patience_s: for how long it is repeated while the server is away.

    Raises:
        CallerError: a server cannot be told that.
    """

    def call(
        method: Method, what: str, name: str, body: object = None, *params: tuple[str, str]
    ) -> Call:
        path = f"/v1/{what}/{quote(name, safe='')}"
        return Call(method=method, path=path, body=body, params=params, patience_s=patience_s)

    match item:
        case DeclareGate():
            return call("PUT", "gates", item.spec.name, _gate(item.spec))
        case SetGate():
            return call("PATCH", "gates", item.name, _numbers(item))
        case ResetGate():
            return call("DELETE", "gates", item.name)
        case DeclareLane():
            lane = _lane(item.spec)
            return call("PUT", "lanes", item.spec.name, lane, ("declare", "true"))
        case SetLane():
            return call("PUT", "lanes", item.spec.name, _lane(item.spec))
        case DeclareEntry():
            return call("PUT", "timetable", item.spec.name, _entry(item.spec))
        case ResetLane():
            return call("DELETE", "lanes", item.name)
        case CloseGate():
            body = {"gate": item.name, "until": item.until_at, "reason": item.reason or reason}
            return Call(
                method="POST", path="/v1/closures", body=filled(body), patience_s=patience_s
            )
        case OpenGate():
            return call("DELETE", "closures", item.name)
        case EnableEntry():
            word = "enable" if item.enabled else "disable"
            path = f"/v1/timetable/{quote(item.name, safe='')}/{word}"
            return Call(method="POST", path=path, body={}, patience_s=patience_s)
        case RemoveEntry():
            return call("DELETE", "timetable", item.name)
        case _:
            message = f"a server is not told a {type(item).__name__} by its client"
            raise CallerError(message, hint="give the server that App with `--app`, or a store")


def _gate(spec: GateSpec) -> Fields:
    kind: Fields = {"kind": str(spec.kind)}
    match spec.kind:
        case GateKind.SLOTS:
            return {**kind, "capacity": spec.capacity, "shared": spec.shared}
        case GateKind.RATE:
            return {**kind, "limit": spec.limit, "per": spec.per_ms, "shared": spec.shared}
        case GateKind.POOL:
            kind |= {"strategy": spec.strategy, "shared": spec.shared}
            return {**kind, "members": dict(spec.members)}
        case GateKind.HOURS:
            return kind if spec.hours is None else {**kind, **_hours(spec.hours)}
        case _:
            assert_never(spec.kind)


def _hours(spec: HoursSpec) -> Fields:
    return {
        "hours": format_spans(spec.spans),
        "days": format_days(spec.days),
        "tz": spec.tz,
        "exceptions": {
            day.isoformat(): format_spans(spans) if spans else None
            for day, spans in spec.exceptions
        },
    }


def _entry(spec: EntrySpec) -> Fields:
    schedule, job = spec.schedule, job_body(spec.job, 0)
    zone = {"anchor": schedule.anchor_at} if isinstance(schedule, Every) else {"tz": schedule.tz}
    return {
        "schedule": format_schedule(schedule),
        **zone,
        "job": {name: value for name, value in job.items() if name not in _ONCE},
        "misfire": str(spec.misfire),
        "misfire_cap": spec.misfire_cap,
        "overlap": spec.overlap,
    }


def _numbers(item: SetGate) -> Fields:
    return filled(
        {
            "capacity": item.capacity,
            "limit": item.limit,
            "per": item.per_ms,
            "members": None if item.members is None else dict(item.members),
        }
    )


def _lane(spec: LaneSpec) -> Fields:
    return filled(
        {
            "concurrency": spec.concurrency,
            "lease": spec.lease_ms,
            "target": spec.target_ms,
            "fair": spec.fair,
            "weights": dict(spec.weights) or None,
            "max_backlog": spec.max_backlog,
        }
    )
