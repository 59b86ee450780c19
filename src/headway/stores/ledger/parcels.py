"""Parcels: what is carried of a store, by parts, each a list of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headway.core.job import JobPolicy
from headway.stores.ledger.gaterows import GateRow, PermitRow, TemplateRow
from headway.stores.ledger.rows import FlowKey, JobRow, KeyRow, LaneRow, RunRow, SignalRow, TrailRow
from headway.stores.ledger.tables.tokens import TokenRow


class CarriedGate(msgspec.Struct, kw_only=True):
    """A gate, with the starts that a rate counts: (moment, number), oldest first."""

    row: GateRow
    starts: list[tuple[int, int]]


class CarriedLane(msgspec.Struct, kw_only=True):
    """A lane, with its tenants' virtual starts."""

    row: LaneRow
    starts: dict[str, int]


class CarriedJob(msgspec.Struct, kw_only=True):
    """A job with all that is its own; its numbers of flow and policy mean nothing elsewhere."""

    row: JobRow
    flow: FlowKey
    policy: JobPolicy
    runs: list[RunRow]
    permits: list[PermitRow]
    key: KeyRow | None


class CarriedEntry(msgspec.Struct, kw_only=True):
    """A timetable entry; its spec is packed as stores keep it."""

    name: str
    spec: bytes | None
    revision: int
    last_fired: int | None
    ahead_until: int | None
    folded: int
    first_seen_at: int


class Known(msgspec.Struct, kw_only=True):
    """A key that a run is known as."""

    key: str
    job: str
    run: int


class Total(msgspec.Struct, kw_only=True):
    """How often something happened since the store was made."""

    what: str
    n: int


PARTS: dict[str, type[Any]] = {
    "templates": TemplateRow,
    "gates": CarriedGate,
    "lanes": CarriedLane,
    "entries": CarriedEntry,
    "tokens": TokenRow,
    "jobs": CarriedJob,
    "known": Known,
    "events": SignalRow,
    "trail": TrailRow,
    "totals": Total,
}
"""The parts in the order in which they are carried, and their rows."""

encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode
_decoders = {part: msgspec.msgpack.Decoder(list[row]) for part, row in PARTS.items()}


def decode(part: str, rows: bytes) -> list[Any]:
    """The rows of a parcel.

    Raises:
        KeyError: there is no such part.
        msgspec.DecodeError: the rows are not of this part.
    """
    return _decoders[part].decode(rows)
