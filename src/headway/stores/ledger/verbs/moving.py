"""Export and import: read a store's whole content chunk by chunk, and write it to another."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headway.contract.extensions import ExportChunk
from headway.core.errors import InvalidValue
from headway.core.job import MAX_BATCH, JobPolicy
from headway.core.state import State
from headway.stores.ledger.columns import entry_values, read_entry
from headway.stores.ledger.gaterows import GateRow, PermitRow, TemplateRow
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import (
    FlowKey,
    JobRow,
    KeyRow,
    LaneRow,
    RunRow,
    SignalRow,
    TrailRow,
)
from headway.stores.ledger.tables import TokenRow


class ExportedGate(msgspec.Struct, kw_only=True):
    """A gate, with the starts that a rate counts: (time, number), oldest first."""

    row: GateRow
    starts: list[tuple[int, int]]


class ExportedLane(msgspec.Struct, kw_only=True):
    """A lane, with its tenants' virtual starts."""

    row: LaneRow
    starts: dict[str, int]


class ExportedJob(msgspec.Struct, kw_only=True):
    """A job with flow, policy, runs and permits; the row's flow and policy numbers are local."""

    row: JobRow
    flow: FlowKey
    policy: JobPolicy
    runs: list[RunRow]
    permits: list[PermitRow]
    key: KeyRow | None


class ExportedEntry(msgspec.Struct):
    """A timetable entry, as in the columns `ENTRY`."""

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
    """A total since the store was created."""

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
PART_NAMES = list(PARTS)

CHUNK_BYTES = 16_000_000
"""Size above which a chunk gets fewer rows: a server limits a request (Redis: to 512 MB)."""

encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode
_decoders = {part: msgspec.msgpack.Decoder(list[row]) for part, row in PARTS.items()}


def decode(chunk: ExportChunk) -> list[Any]:
    """Decode the rows of a chunk.

    Raises:
        InvalidValue: this version cannot read it.
    """
    try:
        return _decoders[chunk.part].decode(chunk.rows)
    except (KeyError, msgspec.DecodeError) as error:
        message = f"a chunk of {chunk.part!r:.40} cannot be read: {error}"
        raise InvalidValue(message, hint="both stores must be of the same version") from None


_Page = tuple[Sequence[Any], Any]
"""Rows, and the place after which the next page starts; None if there is no next page."""
ALL_STARTS = 2**31 - 1


def export_chunk(ledger: Ledger, cursor: str | None) -> ExportChunk:
    """See `Movable.export_chunk`."""
    part, after, limit = read_cursor(cursor)
    export = _COPYING[part][0]
    rows, following = export(ledger, after, limit)
    encoded = encode(rows)
    while len(encoded) > CHUNK_BYTES and 1 < len(rows) <= limit:  # more than that has no pages
        limit = max(1, len(rows) * CHUNK_BYTES // len(encoded))
        rows, following = export(ledger, after, limit)
        encoded = encode(rows)
    if following is not None:
        if 4 * len(encoded) < CHUNK_BYTES:
            limit = min(2 * limit, MAX_BATCH)
        next_cursor = json.dumps([part, following, limit])
    else:
        place = PART_NAMES.index(part) + 1
        end = place == len(PART_NAMES)
        next_cursor = None if end else json.dumps([PART_NAMES[place], None, MAX_BATCH])
    return ExportChunk(part=part, rows=encoded, size=len(rows), cursor=next_cursor)


def read_cursor(cursor: str | None) -> tuple[str, Any, int]:
    """Return the part of a chunk, the place after which it starts, and its maximum number of rows.

    Raises:
        InvalidValue: it is not a cursor.
    """
    if cursor is None:
        return PART_NAMES[0], None, MAX_BATCH
    try:
        part, after, limit = json.loads(cursor)
        _COPYING[part]
    except (ValueError, KeyError, TypeError):
        message = f"{cursor!r:.80} is not a cursor of an export"
        raise InvalidValue(message, hint="pass the cursor of the previous chunk") from None
    return part, after, limit


def import_chunk(ledger: Ledger, chunk: ExportChunk) -> None:
    """See `Movable.import_chunk`."""
    rows = decode(chunk)
    _COPYING[chunk.part][1](ledger, rows)


def _all_rows(rows: Sequence[Any]) -> _Page:
    return rows, None


def _page(rows: Sequence[Any], limit: int, last: Callable[[Any], Any]) -> _Page:
    return rows, last(rows[-1]) if len(rows) == limit else None


def _export_templates(ledger: Ledger, _after: Any, _limit: int) -> _Page:  # noqa: ANN401  (each part has its own type of cursor)
    return _all_rows(list(ledger.gates.templates().values()))


def _import_templates(ledger: Ledger, rows: Sequence[TemplateRow]) -> None:
    for row in rows:
        ledger.gates.save_template(row)
    if rows:
        ledger.facts.bump_revision()


def _export_gates(ledger: Ledger, after: Any, limit: int) -> _Page:  # noqa: ANN401  (as above)
    rows = ledger.gates.page(after or "", limit)
    exported = [
        ExportedGate(row=row, starts=ledger.starts.oldest(row.name, 0, ALL_STARTS)) for row in rows
    ]
    return _page(exported, limit, lambda one: one.row.name)


def _import_gates(ledger: Ledger, rows: Sequence[ExportedGate]) -> None:
    ledger.gates.save(one.row for one in rows)
    for one in rows:
        if one.starts:
            ledger.starts.put(one.row.name, dict(one.starts))


def _export_lanes(ledger: Ledger, _after: Any, _limit: int) -> _Page:  # noqa: ANN401  (as above)
    rows = ledger.lanes.load(ledger.lanes.names()).values()
    return _all_rows(
        [ExportedLane(row=row, starts=ledger.lanes.all_tenant_starts(row.name)) for row in rows]
    )


def _import_lanes(ledger: Ledger, rows: Sequence[ExportedLane]) -> None:
    ledger.lanes.ensure(one.row.name for one in rows)
    for one in rows:
        ledger.lanes.save(one.row)
        ledger.lanes.save_tenant_starts(one.row.name, one.starts)


def _export_entries(ledger: Ledger, _after: Any, _limit: int) -> _Page:  # noqa: ANN401  (as above)
    return _all_rows([ExportedEntry(*entry_values(row)) for row in ledger.entries.all()])


def _import_entries(ledger: Ledger, rows: Sequence[ExportedEntry]) -> None:
    for row in rows:
        ledger.entries.save(read_entry(msgspec.structs.astuple(row)))


def _export_tokens(ledger: Ledger, _after: Any, _limit: int) -> _Page:  # noqa: ANN401  (as above)
    return _all_rows(sorted(ledger.tokens.all(), key=lambda row: row.spec.id))


def _import_tokens(ledger: Ledger, rows: Sequence[TokenRow]) -> None:
    ledger.tokens.save(rows)
    if rows:
        ledger.facts.bump_revision()


def _export_jobs(ledger: Ledger, after: Any, limit: int) -> _Page:  # noqa: ANN401  (as above)
    rows = ledger.jobs.arrived(after or 0, limit)
    ids = [row.id for row in rows]
    runs = ledger.jobs.runs(ids)
    permits = ledger.permits.of_jobs(ids)
    keys = ledger.keys.load([(row.tenant, row.key) for row in rows if row.key is not None])

    def exported(row: JobRow) -> ExportedJob:
        key = keys.get((row.tenant, row.key)) if row.key is not None else None
        return ExportedJob(
            row=row,
            flow=ledger.jobs.flow(row.flow),
            policy=ledger.jobs.policy(row.policy),
            runs=runs.get(row.id, []),
            permits=[permit for permit in permits if permit.job == row.id],
            key=key if key is not None and key.job == row.id else None,
        )

    return _page([exported(row) for row in rows], limit, lambda one: one.row.seq)


def _import_jobs(ledger: Ledger, rows: Sequence[ExportedJob]) -> None:
    jobs = ledger.jobs
    known = jobs.known([one.row.id for one in rows])
    new = [one for one in rows if one.row.id not in known]
    for one in new:
        row = one.row
        row.flow, row.policy = jobs.flow_number(one.flow), jobs.policy_number(one.policy)
        state, row.state = row.state, State.SCHEDULED
        # Every job is inserted as scheduled, then written with its own state.
        jobs.insert([row])
        row.state = state
        ledger.counts.move(row.lane, None, state)
    jobs.save(one.row for one in new)
    jobs.add_runs([run for one in new for run in one.runs])
    ledger.permits.add([permit for one in new for permit in one.permits])
    ledger.keys.save(one.key for one in new if one.key is not None)


def _export_known(ledger: Ledger, after: Any, limit: int) -> _Page:  # noqa: ANN401  (as above)
    found = ledger.signals.all_known(after or "", limit)
    rows = [ExportedKey(key=key, job=job, run=run) for key, job, run in found]
    return _page(rows, limit, lambda one: one.key)


def _import_known(ledger: Ledger, rows: Sequence[ExportedKey]) -> None:
    for row in rows:
        ledger.signals.make_known(row.key, row.job, row.run)


def _export_events(ledger: Ledger, after: Any, limit: int) -> _Page:  # noqa: ANN401  (as above)
    scope, event = after or ("", "")
    rows = ledger.signals.all_received((scope, event), limit)
    return _page(rows, limit, lambda one: (one.scope, one.event))


def _import_events(ledger: Ledger, rows: Sequence[SignalRow]) -> None:
    for row in rows:
        ledger.signals.save(row)


def _export_trail(ledger: Ledger, after: Any, limit: int) -> _Page:  # noqa: ANN401  (as above)
    return _page(ledger.trail.since(after or 0, limit), limit, lambda one: one.seq)


def _import_trail(ledger: Ledger, rows: Sequence[TrailRow]) -> None:
    newest = ledger.trail.page(None, None, 1)
    if rows and (not newest or newest[0][1:] != rows[-1][1:]):
        ledger.trail.add(rows)


def _export_totals(ledger: Ledger, _after: Any, _limit: int) -> _Page:  # noqa: ANN401  (as above)
    return _all_rows([ExportedTotal(what=what, n=n) for what, n in ledger.counts.totals().items()])


def _import_totals(ledger: Ledger, rows: Sequence[ExportedTotal]) -> None:
    standing = ledger.counts.totals()
    for row in rows:
        ledger.counts.happened(row.what, row.n - standing.get(row.what, 0))


_COPYING: dict[str, tuple[Callable[[Ledger, Any, int], _Page], Callable[[Ledger, Any], None]]] = {
    "templates": (_export_templates, _import_templates),
    "gates": (_export_gates, _import_gates),
    "lanes": (_export_lanes, _import_lanes),
    "entries": (_export_entries, _import_entries),
    "tokens": (_export_tokens, _import_tokens),
    "jobs": (_export_jobs, _import_jobs),
    "known": (_export_known, _import_known),
    "events": (_export_events, _import_events),
    "trail": (_export_trail, _import_trail),
    "totals": (_export_totals, _import_totals),
}
"""The functions that export and import each part."""
