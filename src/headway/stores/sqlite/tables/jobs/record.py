"""A job's row: its columns, how they are read and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from headway.stores.ledger.packing import (
    decode_cascade,
    decode_members,
    decode_uses,
    decoder,
    encode,
    encode_cascade,
    encode_members,
    encode_uses,
)
from headway.stores.ledger.rows import JobRow
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.tables.states import CODES, STATES

COLUMNS = (
    "seq, id, state, flow, policy, priority, due_at, created_at, run, attempt, care, blocked_ms,"
    " worker, last_worker, request, claimed_at, finished_at, purge_at, outcome, reason, subject,"
    " stage, expires_at, deadline_at, entry, fired_at, key, keyed, ticket, ticket_amount,"
    " parked_at, unfit, parked_since, gated, members, candidate, cascade, cancel_requested, rest,"
    " args"
)

Row = Sequence[Any]
"""Values of a row, in the order of its columns."""


class Rest(NamedTuple):
    """What most jobs have nothing of."""

    body: bytes
    life: int
    handed_at: int | None
    in_doubt: bool
    reconciles: int
    error: str
    result: bytes | None
    progress: bytes | None


_NOTHING = Rest(b"", 1, None, False, 0, "", None, None)
_decode_rest = decoder(Rest)


def encode_rest(row: JobRow) -> bytes | None:
    """What most jobs have nothing of; None for nothing."""
    rest = Rest(
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


def read_row(session: Session, row: Row) -> JobRow:
    """The job of a row that was selected by `COLUMNS`."""
    flow = session.flows.thing(row[3])
    rest = _decode_rest(row[38]) if row[38] is not None else _NOTHING
    word = session.words.thing
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
        worker=word(row[12]) if row[12] is not None else None,
        last_worker=word(row[13]) if row[13] is not None else "",
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


INSERT_QUEUED = (
    "INSERT INTO job (seq, id, state, lane, flow, policy, priority, due_at, created_at, care,"
    " subject, stage, expires_at, entry, fired_at, key, keyed, cascade, args, run, attempt,"
    " request, gated, blocked_ms, ticket_amount, unfit, parked_since, cancel_requested)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0)"
)


def queued_values(row: JobRow, seq: int, lane: int) -> Row:
    """The values of a job that is inserted scheduled or waiting."""
    return (
        seq,
        row.id,
        CODES[row.state],
        lane,
        row.flow,
        row.policy,
        row.priority,
        row.due_at,
        row.created_at,
        row.care,
        row.subject,
        row.stage,
        row.expires_at,
        row.entry,
        row.fired_at,
        row.key,
        encode_uses(row.keyed) if row.keyed else None,
        encode_cascade(row.cascade) if row.cascade is not None else None,
        row.args,
    )


INSERT = (
    "INSERT INTO job (seq, id, state, lane, flow, policy, priority, due_at, created_at, care,"
    " finished_at, purge_at, reason, subject, stage, expires_at, deadline_at, entry, fired_at,"
    " key, keyed, cascade, run, attempt, worker, request, claimed_at, gated, members, rest, args,"
    " blocked_ms, ticket_amount, unfit, parked_since, cancel_requested)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
    " ?, ?, ?, 0, 0, 0, 0, 0)"
)


def new_values(session: Session, row: JobRow, seq: int) -> Row:
    """The values of a job that is inserted in any other state: it is under way, or over at once."""
    words = session.words.number
    return (
        seq,
        row.id,
        CODES[row.state],
        session.lanes.number(row.lane),
        row.flow,
        row.policy,
        row.priority,
        row.due_at,
        row.created_at,
        row.care,
        row.finished_at,
        row.purge_at,
        row.reason or None,
        row.subject,
        row.stage,
        row.expires_at,
        row.deadline_at,
        row.entry,
        row.fired_at,
        row.key,
        encode_uses(row.keyed) if row.keyed else None,
        encode_cascade(row.cascade) if row.cascade is not None else None,
        row.run,
        row.attempt,
        words(row.worker) if row.worker is not None else None,
        row.request,
        row.claimed_at,
        row.gated,
        encode_members(row.members) if row.members else None,
        encode_rest(row),
        row.args,
    )


SAVE = (
    "UPDATE job SET state = ?, flow = ?, policy = ?, priority = ?, due_at = ?, run = ?,"
    " attempt = ?, care = ?, blocked_ms = ?, worker = ?, last_worker = ?, request = ?,"
    " claimed_at = ?, finished_at = ?, purge_at = ?, outcome = ?, reason = ?, subject = ?,"
    " stage = ?, expires_at = ?, deadline_at = ?, key = ?, keyed = ?, ticket = ?,"
    " ticket_amount = ?, parked_at = ?, unfit = ?, parked_since = ?, gated = ?, members = ?,"
    " candidate = ?, cascade = ?, cancel_requested = ?, rest = ?, args = ? WHERE seq = ?"
)


def saved_values(session: Session, row: JobRow) -> Row:
    """The values of a job that is written back."""
    words = session.words.number
    return (
        CODES[row.state],
        row.flow,
        row.policy,
        row.priority,
        row.due_at,
        row.run,
        row.attempt,
        row.care,
        row.blocked_ms,
        words(row.worker) if row.worker is not None else None,
        words(row.last_worker) if row.last_worker else None,
        row.request,
        row.claimed_at,
        row.finished_at,
        row.purge_at,
        row.outcome or None,
        row.reason or None,
        row.subject,
        row.stage,
        row.expires_at,
        row.deadline_at,
        row.key,
        encode_uses(row.keyed),
        row.ticket,
        row.ticket_amount,
        row.parked_at,
        row.unfit,
        row.parked_since,
        row.gated,
        encode_members(row.members),
        row.candidate or None,
        encode_cascade(row.cascade),
        row.cancel_requested,
        encode_rest(row),
        row.args,
        row.seq,
    )
