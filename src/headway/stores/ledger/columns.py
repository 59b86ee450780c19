"""Columns of the SQL stores, and conversion between them and rows, by position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, cast

from headway.contract.definitions import TokenSpec
from headway.core.flow import Head, Order
from headway.core.gates.view import Reservation
from headway.core.state import State
from headway.stores.ledger.gaterows import GateRow, GateTemplates, TemplateRow
from headway.stores.ledger.packing import (
    decode_cascade,
    decode_entry,
    decode_gate_spec,
    decode_members,
    decode_names,
    decode_uses,
    decoder,
    encode,
    encode_entry,
)
from headway.stores.ledger.rows import EntryRow, FlowKey, JobRow, WorkerRow
from headway.stores.ledger.tables import TokenRow

STATES: tuple[State, ...] = tuple(State)
"""In the order of their numbers, on which the migrations rely."""
CODES = {state: code for code, state in enumerate(STATES)}

SCHEDULED = CODES[State.SCHEDULED]
WAITING = CODES[State.WAITING]
PARKED = CODES[State.PARKED]
RUNNING = CODES[State.RUNNING]
AWAITING = CODES[State.AWAITING]
SUCCEEDED = CODES[State.SUCCEEDED]


JOB = (
    "seq, {id}, state, flow, policy, priority, due_at, created_at, run, attempt, care, blocked_ms,"
    " worker, last_worker, request, claimed_at, finished_at, purge_at, outcome, reason, subject,"
    " stage, expires_at, deadline_at, entry, fired_at, key, keyed, ticket, ticket_amount,"
    " parked_at, unfit, parked_since, gated, members, candidate, cascade, cancel_requested, rest,"
    " args"
)
"""The columns of `read_job`; `{id}` is the store's expression for the id as text."""
HEAD = (
    "priority, due_at, seq, keyed, ticket, cascade, {id}, run, attempt, stage, subject, args,"
    " policy, blocked_ms"
)
"""The columns of `read_heads`; `{id}` as in `JOB`."""


class _JobRest(NamedTuple):
    """Rarely used fields, in one column."""

    body: bytes
    life: int
    handed_at: int | None
    in_doubt: bool
    reconciles: int
    error: str
    result: bytes | None
    progress: bytes | None


_NO_JOB_REST = _JobRest(b"", 1, None, False, 0, "", None, None)
_decode_job_rest = decoder(_JobRest)
_rest_of_job = attrgetter(*_JobRest._fields)


def encode_job_rest(row: JobRow) -> bytes | None:
    """Encode the rarely used fields; return None if all are empty."""
    rest = _rest_of_job(row)
    return encode(rest) if rest != _NO_JOB_REST else None


def read_job(
    row: Sequence[Any], flow_of: Callable[[int], FlowKey], word_of: Callable[[int], str]
) -> JobRow:
    """Read a job from a row selected by `JOB`."""
    flow = flow_of(row[3])
    rest = _decode_job_rest(row[38]) if row[38] is not None else _NO_JOB_REST
    return JobRow(
        seq=row[0],
        id=row[1],
        state=STATES[cast("int", row[2])],
        lane=flow.lane,
        tenant=flow.tenant,
        kind=flow.kind,
        flow=row[3],
        policy=row[4],
        priority=row[5],
        due_at=row[6],
        created_at=row[7],
        run=row[8],
        attempt=row[9],
        care=bool(row[10]),
        blocked_ms=row[11],
        worker=word_of(row[12]) if row[12] is not None else None,
        last_worker=word_of(row[13]) if row[13] is not None else "",
        request=row[14],
        claimed_at=row[15],
        finished_at=row[16],
        purge_at=row[17],
        outcome=row[18] or "",
        reason=row[19] or "",
        subject=row[20],
        stage=row[21],
        expires_at=row[22],
        deadline_at=row[23],
        entry=row[24],
        fired_at=row[25],
        key=row[26],
        keyed=decode_uses(row[27]),
        ticket=row[28],
        ticket_amount=row[29],
        parked_at=row[30],
        unfit=bool(row[31]),
        parked_since=row[32],
        gated=bool(row[33]),
        members=decode_members(row[34]),
        candidate=row[35] or "",
        cascade=decode_cascade(row[36]),
        cancel_requested=bool(row[37]),
        body=rest.body,
        life=rest.life,
        handed_at=rest.handed_at,
        in_doubt=rest.in_doubt,
        reconciles=rest.reconciles,
        error=rest.error,
        result=rest.result,
        progress=rest.progress,
        args=row[39],
    )


_PLAIN = (None, None, None)
"""No keyed gates, no ticket, no candidates."""
_new = cast("Any", tuple).__new__


def read_heads(rows: Iterable[tuple[Any, ...]]) -> list[Head]:
    """Read heads from rows selected by `HEAD`, in their order."""
    return [
        # Plain heads are built without a function call each, which matters in a claim of 1,000.
        _new(Head, (_new(Order, row[:3]), row[6], (), None, (), *row[7:]))
        if row[3:6] == _PLAIN
        else _read_head(row)
        for row in rows
    ]


def order_of(row: tuple[Any, ...]) -> Order:
    """Return the order of a head in a row selected by `HEAD`."""
    return _new(Order, row[:3])


def _read_head(row: tuple[Any, ...]) -> Head:
    cascade = decode_cascade(row[5])
    return Head(
        Order._make(row[:3]),
        row[6],
        decode_uses(row[3]),
        row[4],
        cascade.order() if cascade is not None else (),
        *row[7:],
    )


GATE = "name, template, pool, used, timer_at, horizon_at, rest"
"""The columns of `read_gate`; with the fields of `_GateRest`, those of `GateRow` in order."""


class _GateRest(NamedTuple):
    """Rarely used fields, in one column."""

    capacity: int | None
    closed_until: int | None
    closed_by: str
    closed_reason: str
    last: str
    lanes: tuple[str, ...]
    zone: str | None
    opens: tuple[tuple[int, int], ...]
    reserved: Reservation | None = None


_NO_GATE_REST = _GateRest(None, None, "", "", "", (), None, ())
_decode_gate_rest = decoder(_GateRest)
_rest_of_gate = attrgetter(*_GateRest._fields)


def encode_gate_rest(row: GateRow) -> bytes | None:
    """Encode the rarely used fields; return None if all are empty."""
    rest = _rest_of_gate(row)
    return encode(rest) if rest != _NO_GATE_REST else None


def read_gate(kept: tuple[Any, ...]) -> GateRow:
    """Read a gate from a row selected by `GATE`."""
    *values, data = kept
    values += _NO_GATE_REST if data is None else _decode_gate_rest(data)
    return GateRow(*values)


def read_templates(kept: Iterable[tuple[Any, ...]]) -> GateTemplates:
    """Read declared gates from rows of name, spec and override."""
    return GateTemplates(
        (
            name,
            TemplateRow(
                spec=decode_gate_spec(spec),
                override=decode_gate_spec(override) if override is not None else None,
            ),
        )
        for name, spec, override in kept
    )


WORKER = "id, name, lanes, seen_at, lease_until, request, lapsed"
"""The columns of `read_worker` and `worker_values`."""


def read_worker(kept: tuple[Any, ...]) -> WorkerRow:
    """Read a worker from a row selected by `WORKER`."""
    worker, name, lanes, seen_at, lease_until, request, lapsed = kept
    return WorkerRow(worker, name, decode_names(lanes), seen_at, lease_until, request, bool(lapsed))


def worker_values(row: WorkerRow) -> tuple[str, str, bytes, int, int, int, bool]:
    """Return the values of a worker, in the order of `WORKER`."""
    return (
        row.id,
        row.name,
        encode(row.lanes),
        row.seen_at,
        row.lease_until,
        row.request,
        row.lapsed,
    )


ENTRY = "name, spec, revision, last_fired, ahead_until, folded, first_seen_at"
"""The columns of `read_entry` and `entry_values`, and the fields of `EntryRow`."""
_others_of_entry = attrgetter(*ENTRY.split(", ")[2:])


def read_entry(kept: tuple[Any, ...]) -> EntryRow:
    """Read an entry from a row selected by `ENTRY`."""
    name, spec, *others = kept
    return EntryRow(name, decode_entry(spec), *others)


def entry_values(row: EntryRow) -> tuple[Any, ...]:
    """Return the values of an entry, in the order of `ENTRY`."""
    return (row.name, encode_entry(row.spec), *_others_of_entry(row))


TOKEN = "id, spec, created_at, created_by, used_at"  # noqa: S105  (names of columns)
"""The columns of `read_token` and `token_values`."""

_spec = decoder(TokenSpec)


def read_token(kept: tuple[Any, ...]) -> TokenRow:
    """Read a token from a row selected by `TOKEN`."""
    _, spec, *others = kept
    return TokenRow(_spec(spec), *others)


def token_values(row: TokenRow) -> tuple[str, bytes, int, str, int | None]:
    """Return the values of a token, in the order of `TOKEN`."""
    return row.spec.id, encode(row.spec), row.created_at, row.created_by, row.used_at
