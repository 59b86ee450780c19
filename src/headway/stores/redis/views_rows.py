"""The rows that a read script told, as the ledger's own records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headway.contract.definitions import EntrySpec, LaneSpec, Overlap
from headway.contract.tokens import TokenSpec
from headway.core.cascade import Answer, Asked, Cascade
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.gates.view import Reservation
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

Told = Mapping[str, Any]
"""A row by the names of its fields; those that are None are not there.

An empty map is told as an empty list: Lua has one table for both.
"""

_JOB_FIELDS = frozenset(field.name for field in msgspec.structs.fields(JobRow))
_PAYLOADS = frozenset({"args", "body", "result", "progress"})


def job_row(told: Told) -> JobRow:
    """A job."""
    fields: dict[str, Any] = {name: told[name] for name in told if name in _JOB_FIELDS}
    fields["subject"] = told.get("subject")
    fields["state"] = State(told["state"])
    fields["keyed"] = uses(told, "keyed")
    fields["members"] = texts(told, "members")
    fields["cascade"] = _cascade(told.get("cascade"))
    for name in _PAYLOADS & told.keys():
        fields[name] = payload(told[name])
    return JobRow(**fields)


def run_row(told: Told) -> RunRow:
    """A run that ended."""
    return RunRow(
        job=told["job"],
        run=told["run"],
        attempt=told["attempt"],
        stage=told["stage"],
        worker=told["worker"],
        claimed_at=told["claimed_at"],
        handed_at=told.get("handed_at"),
        ended_at=told["ended_at"],
        outcome=told["outcome"],
        error=told["error"],
        members=texts(told, "members"),
        blocked_ms=told["blocked_ms"],
        due_at=told["due_at"],
        candidate=told.get("candidate", ""),
    )


def flow_key(told: Told) -> FlowKey:
    """What makes a flow."""
    return FlowKey(told["lane"], told["tenant"], told["kind"], uses(told, "shared"))


def policy(told: Told) -> JobPolicy:
    """What a kind says of its jobs."""
    return msgspec.convert(told, JobPolicy)


def gate_row(told: Told) -> GateRow:
    """A gate's instance."""
    return GateRow(
        name=told["name"],
        template=told["template"],
        pool=told.get("pool", ""),
        used=told.get("used", 0),
        capacity=told.get("capacity"),
        closed_until=told.get("closed_until"),
        closed_by=told.get("closed_by", ""),
        closed_reason=told.get("closed_reason", ""),
        last=told.get("last", ""),
        timer_at=told.get("timer_at"),
        lanes=tuple(listed(told, "lanes")),
        zone=told.get("zone"),
        opens=tuple((start, end) for start, end in listed(told, "opens")),
        horizon_at=told.get("horizon_at"),
        reserved=_reservation(told.get("reserved")),
    )


def _reservation(told: Told | None) -> Reservation | None:
    if not told:
        return None
    order = told["order"]
    return Reservation(
        job=told["job"],
        order=(order["priority"], order["due_at"], order["seq"]),
        amount=told["amount"],
        until_at=told["until_at"],
    )


def template_row(told: Told) -> TemplateRow:
    """A gate as it is declared."""
    override = told.get("override")
    return TemplateRow(
        spec=_gate_spec(told["spec"]), override=_gate_spec(override) if override else None
    )


def permit_row(told: Told) -> PermitRow:
    """A permit."""
    return PermitRow(
        gate=told["gate"],
        job=told["job"],
        run=told["run"],
        pool=told.get("pool", ""),
        amount=told["amount"],
        since=told["since"],
        hold=told["hold"],
    )


def lane_row(told: Told) -> LaneRow:
    """A lane."""
    return LaneRow(
        name=told["name"],
        spec=_lane_spec(told.get("spec")),
        override=_lane_spec(told.get("override")),
        level=told.get("level", 0),
    )


def worker_row(told: Told) -> WorkerRow:
    """A worker."""
    return WorkerRow(
        id=told["id"],
        name=told.get("name", ""),
        lanes=tuple(listed(told, "lanes")),
        seen_at=told["seen_at"],
        lease_until=told["lease_until"],
        request=told.get("request", 0),
        lapsed=told.get("lapsed", False),
    )


def entry_row(told: Told) -> EntryRow:
    """A timetable entry."""
    spec = told.get("spec")
    return EntryRow(
        name=told["name"],
        spec=_entry_spec(spec) if spec else None,
        revision=told["revision"],
        last_fired=told.get("last_fired"),
        ahead_until=told.get("ahead_until"),
        folded=told.get("folded", 0),
        first_seen_at=told.get("first_seen_at", 0),
    )


def token_row(told: Told) -> TokenRow:
    """A token."""
    return TokenRow(
        spec=msgspec.convert(told["spec"], TokenSpec),
        created_at=told["created_at"],
        created_by=told["created_by"],
        used_at=told.get("used_at"),
    )


def trail_row(told: Told) -> TrailRow:
    """A line of the trail."""
    return TrailRow(
        seq=told["seq"],
        at=told["at"],
        author=told["author"],
        reason=told["reason"],
        verb=told["verb"],
        target=told["target"],
        detail=told.get("detail", ""),
    )


def listed(told: Told, name: str) -> list[Any]:
    """A list of a record; what is not there is empty."""
    return told.get(name) or []


def paired(told: Told, name: str) -> dict[Any, Any]:
    """A map that was told as pairs, or as a map, which is a list when it is empty."""
    return dict(told.get(name) or ())


def key_row(told: Told) -> KeyRow:
    """A key that makes enqueue idempotent."""
    return KeyRow(
        tenant=told["tenant"],
        key=told["key"],
        job=told["job"],
        body=payload(told["body"]),
        until_at=told.get("until_at"),
    )


def signal_row(told: Told) -> SignalRow:
    """An event that was heard."""
    return SignalRow(
        scope=told["scope"],
        event=told["event"],
        key=told["key"],
        at=told["at"],
        kept_until=told.get("kept_until"),
        payload=from_script(payload(told.get("payload", ""))),
    )


def uses(told: Told, name: str) -> tuple[GateUse, ...]:
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
        for one in listed(told, name)
    )


def texts(told: Told, name: str) -> dict[str, str]:
    """A map of texts."""
    return paired(told, name)


def payload(told: str | bytes) -> bytes:
    """Bytes as they were sent: scripts carry them as text, which they may be no valid one of."""
    return told if isinstance(told, bytes) else told.encode("utf-8", "surrogateescape")


def _cascade(told: Told | None) -> Cascade | None:
    if told is None:
        return None
    return Cascade(
        left=tuple(listed(told, "left")),
        turn=told.get("turn", ""),
        asked=tuple(
            Asked(
                candidate=one["candidate"],
                answer=Answer(one["answer"]),
                at=one["at"],
                reason=one.get("reason", ""),
            )
            for one in listed(told, "asked")
        ),
    )


def _gate_spec(told: Told) -> GateSpec:
    return msgspec.convert(told, GateSpec)


def _lane_spec(told: Told | None) -> LaneSpec | None:
    return msgspec.convert(told, LaneSpec) if told else None


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


def _entry_spec(told: Told) -> EntrySpec:
    job = {**told["job"], "args": payload(told["job"]["args"])}
    kept = msgspec.convert({**told, "job": job}, _Entry)
    schedule: Schedule | None = kept.cron or kept.every or kept.at
    assert schedule is not None  # noqa: S101  (whoever declared it wrote one of them)
    return EntrySpec(
        name=kept.name,
        schedule=schedule,
        job=kept.job,
        misfire=kept.misfire,
        misfire_cap=kept.misfire_cap,
        overlap=kept.overlap,
        enabled=kept.enabled,
    )
