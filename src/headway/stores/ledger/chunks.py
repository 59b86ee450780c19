"""The rows of an export: a store's content in parts, each a list of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headway.core.job import JobPolicy
from headway.stores.ledger.gaterows import GateRow, PermitRow, TemplateRow
from headway.stores.ledger.rows import FlowKey, JobRow, KeyRow, LaneRow, RunRow, SignalRow, TrailRow
from headway.stores.ledger.tables.tokens import TokenRow


class ExportedGate(msgspec.Struct, kw_only=True):
    """A gate, with the starts that a rate counts: (moment, number), oldest first."""

    row: GateRow
    starts: list[tuple[int, int]]


class ExportedLane(msgspec.Struct, kw_only=True):
    """A lane, with its tenants' virtual starts."""

    row: LaneRow
    starts: dict[str, int]


class ExportedJob(msgspec.Struct, kw_only=True):
    """A job with its flow, policy, runs and permits; its own flow and policy numbers are local."""

    row: JobRow
    flow: FlowKey
    policy: JobPolicy
    runs: list[RunRow]
    permits: list[PermitRow]
    key: KeyRow | None


class ExportedEntry(msgspec.Struct, kw_only=True):
    """A timetable entry; its spec is encoded as stores keep it."""

    name: str
    spec: bytes | None
    revision: int
    last_fired: int | None
    ahead_until: int | None
    folded: int
    first_seen_at: int


class ExportedKey(msgspec.Struct, kw_only=True):
    """A signal key of a run."""

    key: str
    job: str
    run: int


class ExportedTotal(msgspec.Struct, kw_only=True):
    """A counter since the store was created."""

    what: str
    n: int


PARTS: dict[str, type[Any]] = {
    "templates": TemplateRow,
    "gates": ExportedGate,
    "lanes": ExportedLane,
    "entries": ExportedEntry,
    "tokens": TokenRow,
    "jobs": ExportedJob,
    "known": ExportedKey,
    "events": SignalRow,
    "trail": TrailRow,
    "totals": ExportedTotal,
}
"""The parts in the order of an export, and the types of their rows."""

encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode
_decoders = {part: msgspec.msgpack.Decoder(list[row]) for part, row in PARTS.items()}


def decode(part: str, rows: bytes) -> list[Any]:
    """Decode the rows of a chunk.

    Raises:
        KeyError: the part is unknown.
        msgspec.DecodeError: the rows do not belong to this part.
    """
    return _decoders[part].decode(rows)
