"""The columns of a job's row, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.stores.ledger.columns import jobs
from headway.stores.ledger.columns.states import CODES
from headway.stores.ledger.packing import encode_cascade, encode_members, encode_uses
from headway.stores.ledger.rows import JobRow
from headway.stores.sqlite.session import Session

COLUMNS = jobs.JOB.format(id="id")
HEAD = jobs.HEAD.format(id="id")

Row = Sequence[Any]
"""Values of a row, in the order of its columns."""


INSERT_QUEUED = (
    "INSERT INTO job (seq, id, state, lane, flow, policy, priority, due_at, created_at, care,"
    " subject, stage, expires_at, entry, fired_at, key, keyed, cascade, args, run, attempt,"
    " request, gated, blocked_ms, ticket_amount, unfit, parked_since, cancel_requested)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0)"
)


def queued_values(row: JobRow, seq: int, lane: int) -> Row:
    """Return the values of a job that is inserted scheduled or waiting."""
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
    """Return the values of a job that is inserted in any other state, such as final."""
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
        jobs.encode_rest(row),
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
    """Return the values of a changed job."""
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
        jobs.encode_rest(row),
        row.args,
        row.seq,
    )
