"""The rows of the calendar: where a job goes, how it is written, and how far it was read.

All times are the store's, in ms UTC; nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zlib import crc32

import msgspec

from headway.bridges.cassandra.link import FARTHEST_MS, Cql, Link, ms_of
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateUse
from headway.core.job import DAY_MS, DEFAULT_POLICY, JobPolicy, NewJob
from headway.core.records import field_names

MINUTE_MS = 60_000
GUARD_MS = 60_000
"""By how much the deletion of a partition is older than the read before it.

A row that arrives after the read is then not covered by the deletion, unless its timestamp is older
than this: the clocks of two engines may differ, and a write takes time.
"""
LONGEST_WRITE_MS = 30_000
"""A write that took longer may have arrived too late to be read, and is repeated in the store.

The rest of the guard is what two clocks may differ by.
"""
LINGER_MS = 120_000
"""For how long after its minute a bucket is still read."""
MOST_ARGS = 65_536
"""Bytes of arguments; jobs with more stay in the store, for a thousand rows are read at a time."""
LEAST_KEPT_MS = DAY_MS
"""For how long after its end a job that came from the calendar is kept, at least.

Until then the store knows its id, so that a row that is read again makes no second job.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def minute_of(at: int) -> int:
    """Return the minute of a moment, counted from 1970."""
    return at // MINUTE_MS


def bucket_name(minute: int) -> str:
    """Return the partition of a minute, as `2026-04-19-09-00` (UTC)."""
    return (_EPOCH + timedelta(minutes=minute)).strftime("%Y-%m-%d-%H-%M")


def shard_of(id_: str, shards: int) -> int:
    """Return the shard of a job within its minute, from 0; by its id, so that it is found again."""
    return crc32(id_.encode()) % shards


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The primary key of a row.

    Attributes:
        bucket: its minute.
        shard: its part of the minute.
        due_at: when it is due, ms UTC.
    """

    bucket: str
    shard: int
    due_at: int
    id: str


def place_of(id_: str, due_at: int, shards: int) -> Place:
    """Return the place of a job that is due at a moment."""
    return Place(
        bucket=bucket_name(minute_of(due_at)), shard=shard_of(id_, shards), due_at=due_at, id=id_
    )


def is_far(job: NewJob, now: int, *, horizon_ms: int, margin_ms: int) -> bool:
    """Return whether a job goes to the calendar; one beyond its index's expiry does not.

    Args:
        horizon_ms: how far the leader reads ahead.
        margin_ms: how much longer than that there must be, so that it is written in time.
    """
    if job.due_at is None or job.entry is not None or len(job.args) > MOST_ARGS:
        return False
    return horizon_ms + margin_ms < job.due_at - now <= FARTHEST_MS


def opened_through(now: int, horizon_ms: int) -> int:
    """Return the last minute that is read ahead now."""
    return minute_of(now + horizon_ms)


def closed_through(read_at: int) -> int:
    """Return the last minute that need not be read again if nothing was found in it now."""
    return minute_of(read_at - LINGER_MS) - 1


def deletion_stamp(read_at: int) -> int:
    """Return the timestamp, in microseconds, with which a partition read then is deleted."""
    return (read_at - GUARD_MS) * 1000


def write_stamp(now: int) -> int:
    """Return the timestamp, in microseconds, of a row that is written now."""
    return now * 1000


def index_seconds(due_at: int, now: int) -> int:
    """For how long the index knows a job: until a day after it is due."""
    return (due_at - now + LEAST_KEPT_MS) // 1000 + 1


_decoder = msgspec.msgpack.Decoder(NewJob)
_encode = msgspec.msgpack.Encoder().encode

_PLAIN = NewJob(id="", kind="")
_APART = {"id", "due_at", "policy", "gates"}
"""Fields that are the row's key, or that many jobs have in common."""
_OWN = tuple(name for name in field_names(NewJob) if name not in _APART)


def row_of(job: NewJob) -> bytes:
    """Return the value of a job's row; its id and due time are the row's key."""
    said: dict[str, Any] = {"id": ""}
    for name in _OWN:
        value = getattr(job, name)
        if name == "kind" or value != getattr(_PLAIN, name):
            said[name] = value
    if job.gates:
        said["gates"] = _gates(job.gates)
    if job.policy is not DEFAULT_POLICY and job.policy != DEFAULT_POLICY:
        said["policy"] = _policy(job.policy)
    return _encode(said)


def job_of(id_: str, due_at: int, row: bytes | None) -> NewJob:
    """Return the job of a row, kept for at least a day after its end.

    Raises:
        InvalidValue: the row holds no job that this program can read.
    """
    try:
        job = _decoder.decode(row or b"")
    except msgspec.DecodeError as error:
        message = f"the row of job {id_} is not readable: {error}"
        raise InvalidValue(
            message, hint="it was not written by Headway, or by a newer one"
        ) from None
    return job.changed(id=id_, due_at=due_at, policy=_kept(job.policy))


@lru_cache(1024)
def _kept(policy: JobPolicy) -> JobPolicy:
    """One object for all that are equal: a store writes each policy of a batch once."""
    if policy.keep_ms >= LEAST_KEPT_MS:
        return policy
    return replace(policy, keep_ms=LEAST_KEPT_MS)


@lru_cache(1024)
def _policy(policy: JobPolicy) -> Mapping[str, Any]:
    said = _differing(policy, DEFAULT_POLICY)
    if policy.retry != DEFAULT_POLICY.retry:
        said["retry"] = _differing(policy.retry, DEFAULT_POLICY.retry)
    return said


@lru_cache(1024)
def _gates(gates: tuple[GateUse, ...]) -> list[Mapping[str, Any]]:
    plain = GateUse(name="", template="")
    return [{**_differing(one, plain), "name": one.name, "template": one.template} for one in gates]


def _differing(value: Hashable, plain: Hashable) -> dict[str, Any]:
    names = field_names(type(value))
    return {name: got for name in names if (got := getattr(value, name)) != getattr(plain, name)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far the calendar was read; since the calendar was made.

    Attributes:
        shards: what the calendar was made with.
        done_through: the last minute that is not read again.
        read_through: the last minute that was read at least once.
        rows_read: since the calendar was made.
        enqueued: jobs that were made of them; the others were in the store before.
        late: rows that were found in a minute that had been read before.
        refused: rows that the store can never take; they are kept apart.
        leader: who read last.
        seen_at: when, ms UTC; None for never.
    """

    shards: int
    done_through: int
    read_through: int
    rows_read: int = 0
    enqueued: int = 0
    late: int = 0
    refused: int = 0
    leader: str | None = None
    seen_at: int | None = None


def ahead_ms(progress: Progress, now: int) -> int:
    """Until how long from now the calendar was read; 0 if it is behind."""
    return max(0, (progress.read_through + 1) * MINUTE_MS - now)


async def load_progress(link: Link) -> Progress | None:
    """Return how far the calendar was read; None if it was never begun."""
    rows = (await link.run(Cql.GET_PROGRESS)).rows
    if not rows:
        return None
    *numbers, leader, seen_at = rows[0]
    shards, done, read, rows_read, enqueued, late, refused = (one or 0 for one in numbers)
    return Progress(
        shards=shards,
        done_through=done,
        read_through=read,
        rows_read=rows_read,
        enqueued=enqueued,
        late=late,
        refused=refused,
        leader=leader,
        seen_at=None if seen_at is None else ms_of(seen_at),
    )


async def begin(link: Link, now: int) -> Progress:
    """Return the calendar's progress, created if missing: nothing due before now is in it.

    Raises:
        InvalidValue: the calendar was made with another number of shards.
        StoreError: Cassandra does not answer.
    """
    shards, start = link.settings.shards, closed_through(now)
    found = await load_progress(link)
    if found is None:
        await link.run(Cql.MAKE_PROGRESS, (shards, start, start))
        found = await load_progress(link)
    made = None if found is None else found.shards
    if found is None or made != shards:
        message = f"cassandra.shards is {shards}; this calendar was made with {made}"
        raise InvalidValue(message, hint="give that number, or another `calendar`")
    return found
