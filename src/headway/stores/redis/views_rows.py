"""Converts the rows of a read script to the ledger's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headway.contract.definitions import EntrySpec, LaneSpec, Overlap
from headway.contract.tokens import TokenSpec
from headway.core.cascade import Answer, Asked, Cascade
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.gates.view import Order, Reservation
from headway.core.job import JobPolicy, NewJob
from headway.core.state import State
from headway.core.timetable.misfire import MisfirePolicy
from headway.core.timetable.schedule import At, Cron, Every, Schedule
from headway.stores.ledger.gaterows import GateRow, PermitRow, TemplateRow
from headway.stores.ledger.rows import (
    EntryRow,
    FlowKey,
    JobRow,
    KeyRow,
    LaneRow,
    RunRow,
    SignalRow,
    TrailRow,
    WorkerRow,
)
from headway.stores.ledger.tables.tokens import TokenRow
from headway.stores.redis.kept_signals import from_script

Record = Mapping[str, Any]
"""A row by the names of its fields; those that are None are not there.

An empty map comes as an empty list: Lua has one type for both.
"""

_JOB_FIELDS = frozenset(field.name for field in msgspec.structs.fields(JobRow))
_PAYLOADS = frozenset({"args", "body", "result", "progress"})


def job_row(record: Record) -> JobRow:
    """A job."""
    fields: dict[str, Any] = {name: record[name] for name in record if name in _JOB_FIELDS}
    fields["subject"] = record.get("subject")
    fields["state"] = State(record["state"])
    fields["keyed"] = uses(record, "keyed")
    fields["members"] = texts(record, "members")
    fields["cascade"] = _cascade(record.get("cascade"))
    for name in _PAYLOADS & record.keys():
        fields[name] = payload(record[name])
    return JobRow(**fields)


def run_row(record: Record) -> RunRow:
    """A run that ended."""
    return RunRow(
        job=record["job"],
        run=record["run"],
        attempt=record["attempt"],
        stage=record["stage"],
        worker=record["worker"],
        claimed_at=record["claimed_at"],
        handed_at=record.get("handed_at"),
        ended_at=record["ended_at"],
        outcome=record["outcome"],
        error=record["error"],
        members=texts(record, "members"),
        blocked_ms=record["blocked_ms"],
        due_at=record["due_at"],
        candidate=record.get("candidate", ""),
    )


def flow_key(record: Record) -> FlowKey:
    """What makes a flow."""
    return FlowKey(record["lane"], record["tenant"], record["kind"], uses(record, "shared"))


def policy(record: Record) -> JobPolicy:
    """What a kind says of its jobs."""
    return msgspec.convert(record, JobPolicy)


def gate_row(record: Record) -> GateRow:
    """A gate's instance."""
    return GateRow(
        name=record["name"],
        template=record["template"],
        pool=record.get("pool", ""),
        used=record.get("used", 0),
        capacity=record.get("capacity"),
        closed_until=record.get("closed_until"),
        closed_by=record.get("closed_by", ""),
        closed_reason=record.get("closed_reason", ""),
        last=record.get("last", ""),
        timer_at=record.get("timer_at"),
        lanes=tuple(listed(record, "lanes")),
        zone=record.get("zone"),
        opens=tuple((start, end) for start, end in listed(record, "opens")),
        horizon_at=record.get("horizon_at"),
        reserved=_reservation(record.get("reserved")),
    )


def _reservation(record: Record | None) -> Reservation | None:
    if not record:
        return None
    order = record["order"]
    return Reservation(
        job=record["job"],
        order=Order(order["priority"], order["due_at"], order["seq"]),
        amount=record["amount"],
        until_at=record["until_at"],
    )


def template_row(record: Record) -> TemplateRow:
    """A gate as it is declared."""
    override = record.get("override")
    return TemplateRow(
        spec=_gate_spec(record["spec"]), override=_gate_spec(override) if override else None
    )


def permit_row(record: Record) -> PermitRow:
    """A permit."""
    return PermitRow(
        gate=record["gate"],
        job=record["job"],
        run=record["run"],
        pool=record.get("pool", ""),
        amount=record["amount"],
        since=record["since"],
        hold=record["hold"],
    )


def lane_row(record: Record) -> LaneRow:
    """A lane."""
    return LaneRow(
        name=record["name"],
        spec=_lane_spec(record.get("spec")),
        override=_lane_spec(record.get("override")),
        level=record.get("level", 0),
    )


def worker_row(record: Record) -> WorkerRow:
    """A worker."""
    return WorkerRow(
        id=record["id"],
        name=record.get("name", ""),
        lanes=tuple(listed(record, "lanes")),
        seen_at=record["seen_at"],
        lease_until=record["lease_until"],
        request=record.get("request", 0),
        lapsed=record.get("lapsed", False),
    )


def entry_row(record: Record) -> EntryRow:
    """A timetable entry."""
    spec = record.get("spec")
    return EntryRow(
        name=record["name"],
        spec=_entry_spec(spec) if spec else None,
        revision=record["revision"],
        last_fired=record.get("last_fired"),
        ahead_until=record.get("ahead_until"),
        folded=record.get("folded", 0),
        first_seen_at=record.get("first_seen_at", 0),
    )


def token_row(record: Record) -> TokenRow:
    """A token."""
    return TokenRow(
        spec=msgspec.convert(record["spec"], TokenSpec),
        created_at=record["created_at"],
        created_by=record["created_by"],
        used_at=record.get("used_at"),
    )


def trail_row(record: Record) -> TrailRow:
    """A line of the trail."""
    return TrailRow(
        seq=record["seq"],
        at=record["at"],
        author=record["author"],
        reason=record["reason"],
        verb=record["verb"],
        target=record["target"],
        detail=record.get("detail", ""),
    )


def listed(record: Record, name: str) -> list[Any]:
    """A list of a record; what is not there is empty."""
    return record.get(name) or []


def paired(record: Record, name: str) -> dict[Any, Any]:
    """Return a map that came as pairs, or as a map, which is a list when it is empty."""
    return dict(record.get(name) or ())


def key_row(record: Record) -> KeyRow:
    """A key that makes enqueue idempotent."""
    return KeyRow(
        tenant=record["tenant"],
        key=record["key"],
        job=record["job"],
        body=payload(record["body"]),
        until_at=record.get("until_at"),
    )


def signal_row(record: Record) -> SignalRow:
    """An event that was heard."""
    return SignalRow(
        scope=record["scope"],
        event=record["event"],
        key=record["key"],
        at=record["at"],
        kept_until=record.get("kept_until"),
        payload=from_script(payload(record.get("payload", ""))),
    )


def uses(record: Record, name: str) -> tuple[GateUse, ...]:
    """Gates that a job asks for."""
    return tuple(
        GateUse(
            name=one["name"],
            template=one["template"],
            amount=one.get("amount", 1),
            hold=one.get("hold", "settled"),
            shared=one.get("shared", False),
            zone=one.get("zone"),
        )
        for one in listed(record, name)
    )


def texts(record: Record, name: str) -> dict[str, str]:
    """A map of texts."""
    return paired(record, name)


def payload(record: str | bytes) -> bytes:
    """Return bytes as they were sent: scripts pass them as text, which may not be valid UTF-8."""
    return record if isinstance(record, bytes) else record.encode("utf-8", "surrogateescape")


def _cascade(record: Record | None) -> Cascade | None:
    if record is None:
        return None
    return Cascade(
        left=tuple(listed(record, "left")),
        turn=record.get("turn", ""),
        asked=tuple(
            Asked(
                candidate=one["candidate"],
                answer=Answer(one["answer"]),
                at=one["at"],
                reason=one.get("reason", ""),
            )
            for one in listed(record, "asked")
        ),
    )


def _gate_spec(record: Record) -> GateSpec:
    return msgspec.convert(record, GateSpec)


def _lane_spec(record: Record | None) -> LaneSpec | None:
    return msgspec.convert(record, LaneSpec) if record else None


class _Entry(msgspec.Struct, kw_only=True):
    """An entry; exactly one of the three schedules is there."""

    name: str
    job: NewJob
    misfire: MisfirePolicy
    misfire_cap: int
    overlap: Overlap
    enabled: bool
    cron: Cron | None = None
    every: Every | None = None
    at: At | None = None


def _entry_spec(record: Record) -> EntrySpec:
    job = {**record["job"], "args": payload(record["job"]["args"])}
    kept = msgspec.convert({**record, "job": job}, _Entry)
    schedule: Schedule | None = kept.cron or kept.every or kept.at
    assert schedule is not None  # noqa: S101  (every declared entry has one of them)
    return EntrySpec(
        name=kept.name,
        schedule=schedule,
        job=kept.job,
        misfire=kept.misfire,
        misfire_cap=kept.misfire_cap,
        overlap=kept.overlap,
        enabled=kept.enabled,
    )
