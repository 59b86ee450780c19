"""Encoded columns: MessagePack for nested values, JSON for signals and replies."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from headway.contract.definitions import EntrySpec, LaneSpec, Overlap
from headway.contract.operate import ActReply
from headway.contract.signals import Signal
from headway.core.cascade import Asked, Cascade
from headway.core.gates.spec import GateSpec, GateUse, Hold
from headway.core.job import JobPolicy, NewJob
from headway.core.timetable.fires import MisfirePolicy
from headway.core.timetable.schedule import At, Cron, Every
from headway.stores.ledger.rows import FlowKey

Value = TypeVar("Value")

encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode
"""Equal values encode to equal bytes; policies are looked up by their bytes."""
encode_json: Callable[[object], bytes] = msgspec.json.Encoder().encode


def encode_some(value: object) -> bytes | None:
    """Encode a value; return None if it is None or empty."""
    return encode(value) if value else None


def decoder(kind: type[Value]) -> Callable[[bytes], Value]:
    """Return a decoder of one type."""
    made: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
    return made.decode


decode_policy = decoder(JobPolicy)
decode_gate_spec = decoder(GateSpec)
decode_lane_spec = decoder(LaneSpec)
decode_names = decoder(tuple[str, ...])
_signal: Callable[[bytes], Signal] = msgspec.json.Decoder(Signal).decode
decode_replies: Callable[[bytes], list[ActReply]] = msgspec.json.Decoder(list[ActReply]).decode

_Use = tuple[str, str, int, Hold, bool, str | None]
_uses = decoder(list[_Use])
_flows = decoder(tuple[str, str, str, list[_Use]])
_members = decoder(dict[str, str])
_cascades = decoder(tuple[tuple[str, ...], str, tuple[Asked, ...]])


def encode_signal(event: Signal) -> bytes:
    """Encode a signal to keep."""
    return encode_json(event)


def decode_signal(payload: bytes) -> Signal:
    """Decode a kept signal."""
    return _signal(payload)


def encode_uses(uses: tuple[GateUse, ...]) -> bytes | None:
    """Encode the gates of a job; return None if there are none."""
    return encode(_bare_uses(uses)) if uses else None


@lru_cache(maxsize=4096)
def decode_uses(data: bytes | None) -> tuple[GateUse, ...]:
    """Decode the gates of a job.

    Cached, because each claim reads the heads of all flows of a lane again until they start.
    """
    return _whole_uses(_uses(data)) if data is not None else ()


def _bare_uses(uses: tuple[GateUse, ...]) -> list[_Use]:
    return [(u.name, u.template, u.amount, u.hold, u.shared, u.zone) for u in uses]


def _whole_uses(bare: list[_Use]) -> tuple[GateUse, ...]:
    return tuple(
        GateUse(name=name, template=template, amount=amount, hold=hold, shared=shared, zone=zone)
        for name, template, amount, hold, shared, zone in bare
    )


def encode_flow(key: FlowKey) -> bytes:
    """Encode a flow's key; equal keys encode to equal bytes."""
    return encode((key.lane, key.tenant, key.kind, _bare_uses(key.shared)))


def decode_flow(data: bytes) -> FlowKey:
    """Decode a flow's key."""
    lane, tenant, kind, shared = _flows(data)
    return FlowKey(lane, tenant, kind, _whole_uses(shared))


def decode_members(data: bytes | None) -> dict[str, str]:
    """Decode the members that a run took."""
    return _members(data) if data is not None else {}


def encode_cascade(cascade: Cascade | None) -> bytes | None:
    """Encode a job's cascade, if it has one."""
    return encode((cascade.left, cascade.turn, cascade.asked)) if cascade is not None else None


def decode_cascade(data: bytes | None) -> Cascade | None:
    """Decode a job's cascade, if it has one."""
    if data is None:
        return None
    left, turn, asked = _cascades(data)
    return Cascade(left=left, turn=turn, asked=asked)


class StoredEntry(msgspec.Struct, kw_only=True):
    """A timetable entry; exactly one of the three schedules is set."""

    name: str
    job: NewJob
    misfire: MisfirePolicy
    misfire_cap: int
    overlap: Overlap
    enabled: bool
    cron: Cron | None = None
    every: Every | None = None
    at: At | None = None


_entries = decoder(StoredEntry)


def encode_entry(spec: EntrySpec | None) -> bytes | None:
    """Encode a timetable entry; return None if it was removed."""
    if spec is None:
        return None
    schedule = spec.schedule
    return encode(
        StoredEntry(
            name=spec.name,
            job=spec.job,
            misfire=spec.misfire,
            misfire_cap=spec.misfire_cap,
            overlap=spec.overlap,
            enabled=spec.enabled,
            cron=schedule if isinstance(schedule, Cron) else None,
            every=schedule if isinstance(schedule, Every) else None,
            at=schedule if isinstance(schedule, At) else None,
        )
    )


def decode_entry(data: bytes | None) -> EntrySpec | None:
    """Decode a timetable entry."""
    return entry_spec(_entries(data)) if data is not None else None


def entry_spec(kept: StoredEntry) -> EntrySpec:
    """Return the entry as it was declared."""
    schedule = kept.cron or kept.every or kept.at
    assert schedule is not None  # noqa: S101  (every entry has one)
    return EntrySpec(
        name=kept.name,
        schedule=schedule,
        job=kept.job,
        misfire=kept.misfire,
        misfire_cap=kept.misfire_cap,
        overlap=kept.overlap,
        enabled=kept.enabled,
    )
