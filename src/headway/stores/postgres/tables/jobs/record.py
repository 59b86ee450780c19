"""A job's row: its columns, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence

from headway.stores.ledger.columns import jobs
from headway.stores.ledger.columns.states import CODES
from headway.stores.ledger.packing import encode_cascade, encode_members, encode_uses
from headway.stores.ledger.rows import JobRow
from headway.stores.postgres.arrays import Blobs, Flags, Ids, MaybeNumbers, Numbers, Texts
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import ANY_JOB, Tell, of
from headway.stores.postgres.tables.trail import storable

COLUMNS = jobs.JOB.format(id="id::text")
HEAD = jobs.HEAD.format(id="id::text")

Packed = Numbers | MaybeNumbers | Texts | Blobs | Flags | Ids

_NEW = (
    ("id", "uuid"),
    ("state", "bigint"),
    ("lane", "bigint"),
    ("flow", "bigint"),
    ("policy", "bigint"),
    ("priority", "bigint"),
    ("due_at", "bigint"),
    ("created_at", "bigint"),
    ("care", "boolean"),
    ("subject", "text"),
    ("stage", "text"),
    ("expires_at", "bigint"),
    ("entry", "text"),
    ("fired_at", "bigint"),
    ("key", "text"),
    ("keyed", "bytea"),
    ("cascade", "bytea"),
    ("args", "bytea"),
)
_FINAL = (*_NEW, ("finished_at", "bigint"), ("purge_at", "bigint"), ("reason", "text"))


def _names(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(name for name, _ in columns)


def _bound(columns: Sequence[tuple[str, str]], suffix: str) -> str:
    return ", ".join(f"${place}::{kind}{suffix}" for place, (_, kind) in enumerate(columns, 1))


INSERT_ONE = Tell(
    # For one row, lists cost twice as much as all the rest of the insertion.
    f"INSERT INTO @job ({_names(_NEW)}) VALUES ({_bound(_NEW, '')})",  # noqa: S608  (names only)
    of("waiting", "scheduled", "expiry", "job"),
)
INSERT = Tell(
    f"INSERT INTO @job ({_names(_NEW)}) SELECT * FROM unnest({_bound(_NEW, '[]')})",  # noqa: S608  (names only)
    INSERT_ONE.changes,
)
INSERT_FINAL = Tell(
    f"INSERT INTO @job ({_names(_FINAL)}) SELECT * FROM unnest({_bound(_FINAL, '[]')})",  # noqa: S608  (names only)
    of("job"),
)


def one_new(session: Session, row: JobRow) -> tuple[object, ...]:
    """What `INSERT_ONE` is bound to."""
    return (
        row.id,
        CODES[row.state],
        session.lanes.number(row.lane),
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
        encode_cascade(row.cascade) if row.cascade else None,
        row.args,
    )


def new_values(session: Session, rows: Sequence[JobRow]) -> tuple[Packed | None, ...]:
    """What `INSERT` is bound to."""
    lane = session.lanes.number
    return (
        Ids([row.id for row in rows]),
        Numbers([CODES[row.state] for row in rows]),
        Numbers([lane(row.lane) for row in rows]),
        Numbers([row.flow for row in rows]),
        Numbers([row.policy for row in rows]),
        Numbers([row.priority for row in rows]),
        Numbers([row.due_at for row in rows]),
        Numbers([row.created_at for row in rows]),
        Flags([row.care for row in rows]),
        _texts([row.subject for row in rows]),
        Texts([row.stage for row in rows]),
        _numbers([row.expires_at for row in rows]),
        _texts([row.entry for row in rows]),
        _numbers([row.fired_at for row in rows]),
        _texts([row.key for row in rows]),
        _blobs([encode_uses(row.keyed) if row.keyed else None for row in rows]),
        _blobs([encode_cascade(row.cascade) if row.cascade else None for row in rows]),
        Blobs([row.args for row in rows]),
    )


def final_values(rows: Sequence[JobRow]) -> tuple[Packed | None, ...]:
    """What `INSERT_FINAL` is bound to besides."""
    return (
        _numbers([row.finished_at for row in rows]),
        _numbers([row.purge_at for row in rows]),
        _texts([storable(row.reason) or None for row in rows]),
    )


def _numbers(values: list[int | None]) -> MaybeNumbers | None:
    return MaybeNumbers(values) if any(one is not None for one in values) else None


def _texts(values: list[str | None]) -> Texts | None:
    return Texts(values) if any(one is not None for one in values) else None


def _blobs(values: list[bytes | None]) -> Blobs | None:
    return Blobs(values) if any(one is not None for one in values) else None


_SAVED = (
    ("state", "bigint"),
    ("flow", "bigint"),
    ("policy", "bigint"),
    ("priority", "bigint"),
    ("due_at", "bigint"),
    ("run", "bigint"),
    ("attempt", "bigint"),
    ("care", "boolean"),
    ("blocked_ms", "bigint"),
    ("worker", "bigint"),
    ("last_worker", "bigint"),
    ("request", "bigint"),
    ("claimed_at", "bigint"),
    ("finished_at", "bigint"),
    ("purge_at", "bigint"),
    ("outcome", "text"),
    ("reason", "text"),
    ("subject", "text"),
    ("stage", "text"),
    ("expires_at", "bigint"),
    ("deadline_at", "bigint"),
    ("key", "text"),
    ("keyed", "bytea"),
    ("ticket", "text"),
    ("ticket_amount", "bigint"),
    ("parked_at", "text"),
    ("unfit", "boolean"),
    ("parked_since", "bigint"),
    ("gated", "boolean"),
    ("members", "bytea"),
    ("candidate", "text"),
    ("cascade", "bytea"),
    ("cancel_requested", "boolean"),
    ("rest", "bytea"),
    ("args", "bytea"),
)
SAVE = Tell(
    "UPDATE @job AS job SET "  # noqa: S608  (names only)
    + ", ".join(f"{name} = new.{name}" for name, _ in _SAVED)
    + " FROM unnest($1::uuid[], "
    + ", ".join(f"${place}::{kind}[]" for place, (_, kind) in enumerate(_SAVED, 2))
    + ") AS new (id, "
    + ", ".join(name for name, _ in _SAVED)
    + ") WHERE job.id = new.id",
    ANY_JOB,
)


def saved_values(session: Session, rows: Sequence[JobRow]) -> tuple[Packed | None, ...]:
    """What `SAVE` is bound to."""
    words = session.words.number
    return (
        Ids([row.id for row in rows]),
        Numbers([CODES[row.state] for row in rows]),
        Numbers([row.flow for row in rows]),
        Numbers([row.policy for row in rows]),
        Numbers([row.priority for row in rows]),
        Numbers([row.due_at for row in rows]),
        Numbers([row.run for row in rows]),
        Numbers([row.attempt for row in rows]),
        Flags([row.care for row in rows]),
        Numbers([row.blocked_ms for row in rows]),
        _numbers([None if row.worker is None else words(row.worker) for row in rows]),
        _numbers([words(row.last_worker) if row.last_worker else None for row in rows]),
        Numbers([row.request for row in rows]),
        _numbers([row.claimed_at for row in rows]),
        _numbers([row.finished_at for row in rows]),
        _numbers([row.purge_at for row in rows]),
        _texts([row.outcome or None for row in rows]),
        _texts([storable(row.reason) or None for row in rows]),
        _texts([row.subject for row in rows]),
        Texts([row.stage for row in rows]),
        _numbers([row.expires_at for row in rows]),
        _numbers([row.deadline_at for row in rows]),
        _texts([row.key for row in rows]),
        _blobs([encode_uses(row.keyed) for row in rows]),
        _texts([row.ticket for row in rows]),
        Numbers([row.ticket_amount for row in rows]),
        _texts([row.parked_at for row in rows]),
        Flags([row.unfit for row in rows]),
        Numbers([row.parked_since for row in rows]),
        Flags([row.gated for row in rows]),
        _blobs([encode_members(row.members) for row in rows]),
        _texts([row.candidate or None for row in rows]),
        _blobs([encode_cascade(row.cascade) for row in rows]),
        Flags([row.cancel_requested for row in rows]),
        _blobs([jobs.encode_rest(row) for row in rows]),
        Blobs([row.args for row in rows]),
    )
