"""Request bodies of producers: jobs and definitions, as the HTTP API expects them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import quote

import msgspec
from uuid_utils import uuid7

from headway.client.calls import HttpCall, Method
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
from headway.contract.store import Sent
from headway.core.duration import parse_duration
from headway.core.errors import CallerError, InvalidValue
from headway.core.gates.kinds import traits_of
from headway.core.gates.spec import GateUse
from headway.core.instant import parse_instant
from headway.core.job import DEFAULT_POLICY, DEFAULT_PRIORITY, FollowUp, JobPolicy, NewJob
from headway.core.retry import RetryPolicy
from headway.core.timetable.schedule import Every, format_schedule
from headway.runtime.records import encode

Fields = dict[str, object]


def read_sent(reply: Mapping[str, Any]) -> list[Sent]:
    """Read the reply to a list of jobs."""
    return [Sent(one["id"], one["created"]) for one in reply["jobs"]]


def path_part(name: str) -> str:
    """Return a name as a part of a path, also `..`, which the HTTP library would resolve."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def filled(fields: Mapping[str, object]) -> Fields:
    """Return the fields that are neither None nor empty text."""
    return {name: value for name, value in fields.items() if value not in ("", None)}


_EMPTY_BY_DEFAULT = {"tenant": "", "stage": ""}
"""Fields whose empty text is the default."""


def job_body(job: NewJob, now: int) -> Fields:
    """Return the body that creates a job.

    Args:
        now: the caller's own time, ms UTC, for a job that expires but has no due time.

    Raises:
        InvalidValue: it is a fire of a timetable entry, which only a store creates.
    """
    if job.entry is not None:
        message = f"the job {job.id} is a fire of the entry {job.entry!r}"
        raise InvalidValue(message, hint="the server creates the fires of its timetable")
    fields: Fields = {
        "id": job.id,
        "kind": job.kind,
        "lane": job.lane,
        "args": msgspec.Raw(job.args),
        "tenant": job.tenant,
        "subject": job.subject,
        "stage": job.stage,
        "due": job.due_at,
        "key": job.key,
        "candidates": list(job.candidates) or None,
        "gates": gate_bodies(job.gates) or None,
    }
    body = {
        name: value
        for name, value in fields.items()
        if value is not None and value != _EMPTY_BY_DEFAULT.get(name)
    }
    if job.priority != DEFAULT_PRIORITY:
        body["priority"] = job.priority
    if job.expires_at is not None:
        body["expires"] = max(job.expires_at - (now if job.due_at is None else job.due_at), 0)
    if job.policy is not DEFAULT_POLICY:
        body |= _policy_fields(job.policy)
    return body


def gate_bodies(gates: Iterable[GateUse]) -> list[Fields]:
    """Return a job's uses of gates: the name as declared, and as resolved."""
    return [_gate_use(use) for use in gates]


def _gate_use(use: GateUse) -> Fields:
    body: Fields = {"gate": use.template}
    if use.name != use.template:
        body["name"] = use.name
    if use.zone is not None:
        body["zone"] = use.zone
    if use.amount != 1:
        body["amount"] = use.amount
    if use.hold != "settled":
        body["hold"] = use.hold
    return body


def _policy_fields(policy: JobPolicy) -> Fields:
    """Return the fields that differ from the default policy."""
    plain = DEFAULT_POLICY
    spans = {
        "timeout": (policy.timeout_ms, plain.timeout_ms),
        "start_within": (policy.start_within_ms, plain.start_within_ms),
        "reconcile_within": (policy.reconcile_within_ms, plain.reconcile_within_ms),
        "keep": (policy.keep_ms, plain.keep_ms),
        "key_for": (policy.key_for_ms, plain.key_for_ms),
        "on_deadline": (policy.on_deadline, plain.on_deadline),
        "reconcile": (policy.reconcile, plain.reconcile),
    }
    body: Fields = {name: value for name, (value, usual) in spans.items() if value != usual}
    if policy.retry != plain.retry:
        body["retry"] = _retry(policy.retry)
    if policy.on_final is not None:
        follow = policy.on_final
        states = [str(state) for state in follow.states]
        body["on_final"] = {**_follow_up(follow), "states": states}
    if policy.cascade:
        body["cascade"] = True
    if policy.on_accepted is not None:
        body["on_accepted"] = _follow_up(policy.on_accepted)
    return body


def _follow_up(follow: FollowUp) -> Fields:
    body: Fields = {"kind": follow.kind, "lane": follow.lane}
    if follow.policy is not None:
        body["policy"] = _policy_fields(follow.policy)
    return body


def _retry(retry: RetryPolicy) -> Fields:
    return {
        "attempts": retry.attempts,
        "base": retry.base_ms,
        "factor": retry.factor,
        "cap": retry.cap_ms,
        "jitter": retry.jitter,
    }


OPTIONS = frozenset(
    {
        "candidates",
        "due",
        "expires",
        "job_id",
        "key",
        "lane",
        "priority",
        "subject",
        "tenant",
    }
)
"""Options of a send in addition to arguments; the names are those of `Kind.make`."""


def plain_body(kind: str, given: Mapping[str, object], also: Mapping[str, object]) -> Fields:
    """Return the body that creates a job of a kind given by name.

    Args:
        given: the handler's arguments, and the options of `Kind.make`; `due` may be a duration from
            now, such as "20m".
        also: further fields of the job, as in the HTTP API, such as gates and retry.

    Returns:
        The body, with an id, so that it can be sent again.
    """
    fields: Fields = {name: value for name, value in given.items() if name in OPTIONS}
    args = {name: value for name, value in given.items() if name not in OPTIONS}
    return body_with_id({"kind": kind, "args": args, **_read_options(fields), **also})


def body_with_id(body: Mapping[str, object]) -> Fields:
    """Return the body with an id, a new one if it has none.

    Raises:
        InvalidValue: it is not a mapping with a kind, or JSON cannot represent its arguments.
        PayloadTooLarge: the arguments exceed the size limit.
    """
    if not isinstance(cast("object", body), Mapping) or not body.get("kind"):
        message = f"a job has no kind: {body!r:.80}"
        raise InvalidValue(message, hint='as {"kind": "send_mail", "args": {"to": "…"}}')
    fields = {"id": str(uuid7()), **body}
    if "args" in body:
        # Encoded here, because the encoder of the whole body writes NaN as null.
        fields["args"] = msgspec.Raw(encode("value of args", body["args"]))
    return fields


def _read_options(fields: Fields) -> Fields:
    body = {name: value for name, value in fields.items() if value is not None}
    if "job_id" in body:
        body["id"] = str(body.pop("job_id"))
    if isinstance(body.get("due"), datetime):
        body["due"] = parse_instant(body["due"])
    for name in ("due", "expires"):
        if isinstance(body.get(name), timedelta):
            body[name] = parse_duration(body[name])
    if isinstance(fields.get("due"), timedelta):
        # A bare number would be an instant.
        body["due"] = f"{body['due']}ms"
    return body


DECLARED = (DeclareGate, DeclareLane, DeclareEntry)
"""Declarations by code; an operator's values take precedence over them."""

_ONCE = frozenset({"id", "due", "expires", "key"})
"""Fields that the job of a timetable entry does not have."""


def definition(item: Item, reason: str, patience_s: float) -> HttpCall:  # noqa: C901, PLR0911, PLR0912  (one line for each)
    """Return the call for a definition.

    Raises:
        CallerError: the HTTP API has no such definition.
    """

    def call(
        method: Method, what: str, name: str, body: object = None, *params: tuple[str, str]
    ) -> HttpCall:
        path = f"/v1/{what}/{path_part(name)}"
        return HttpCall(method=method, path=path, body=body, params=params, patience_s=patience_s)

    match item:
        case DeclareGate():
            gate = {"kind": str(item.spec.kind), **traits_of(item.spec.kind).declared(item.spec)}
            return call("PUT", "gates", item.spec.name, gate)
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
            return HttpCall(
                method="POST", path="/v1/closures", body=filled(body), patience_s=patience_s
            )
        case OpenGate():
            return call("DELETE", "closures", item.name)
        case EnableEntry():
            word = "enable" if item.enabled else "disable"
            path = f"/v1/timetable/{quote(item.name, safe='')}/{word}"
            return HttpCall(method="POST", path=path, body={}, patience_s=patience_s)
        case RemoveEntry():
            return call("DELETE", "timetable", item.name)
        case _:
            message = f"a client cannot send a {type(item).__name__} to a server"
            raise CallerError(
                message, hint="start the server with that App (`--app`), or open a store"
            )


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
