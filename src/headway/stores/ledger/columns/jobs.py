"""The columns of jobs, and how rows and heads of flows are read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

from headway.core.flow import Head, Order
from headway.stores.ledger.columns.states import STATES
from headway.stores.ledger.packing import (
    decode_cascade,
    decode_members,
    decode_uses,
    decoder,
    encode,
)
from headway.stores.ledger.rows import FlowKey, JobRow

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


class _Rest(NamedTuple):
    """Rarely used fields, in one column."""

    body: bytes
    life: int
    handed_at: int | None
    in_doubt: bool
    reconciles: int
    error: str
    result: bytes | None
    progress: bytes | None


_NOTHING = _Rest(b"", 1, None, False, 0, "", None, None)
_decode_rest = decoder(_Rest)


def encode_rest(row: JobRow) -> bytes | None:
    """Encode the rarely used fields; None if all are empty."""
    rest = _Rest(
        row.body,
        row.life,
        row.handed_at,
        row.in_doubt,
        row.reconciles,
        row.error,
        row.result,
        row.progress,
    )
    return encode(rest) if rest != _NOTHING else None


def read_job(
    row: Sequence[Any], flow_of: Callable[[int], FlowKey], word_of: Callable[[int], str]
) -> JobRow:
    """Return the job of a row selected by `JOB`.

    Args:
        row: the selected values.
        flow_of: returns the flow of a number.
        word_of: returns the text of a number, such as a worker's id.
    """
    flow = flow_of(row[3])
    rest = _decode_rest(row[38]) if row[38] is not None else _NOTHING
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
    """Return the heads of rows selected by `HEAD`, in their order."""
    return [
        # Plain heads are built without a call each, which matters in a claim of 1,000.
        _new(Head, (_new(Order, row[:3]), row[6], (), None, (), *row[7:]))
        if row[3:6] == _PLAIN
        else _read_head(row)
        for row in rows
    ]


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
