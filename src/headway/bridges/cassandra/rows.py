"""The rows of the calendar: a job's place, its encoding, and the reading progress.

All times are the store's, in ms UTC; this module reads no clock.
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
"""How much older the timestamp of a partition's deletion is than the read before it.

A row that arrives after the read is not covered by the deletion, unless its timestamp is older than
this: the clocks of two engines may differ, and a write takes time.
"""
LONGEST_WRITE_MS = 30_000
"""A slower write may have arrived too late to be read, and is repeated in the store.

The rest of the guard allows for the difference between two clocks.
"""
LINGER_MS = 120_000
"""How long after its minute a bucket is still read."""
MOST_ARGS = 65_536
"""Maximum bytes of arguments; larger jobs stay in the store, because 1000 rows are read at once."""
LEAST_KEPT_MS = DAY_MS
"""Minimum time for which a job from the calendar is kept after its end.

Until then the store knows its id, so that reading its row again creates no second job.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def minute_of(at: int) -> int:
    """Return the minute of a time, counted from 1970."""
    return at // MINUTE_MS


def bucket_name(minute: int) -> str:
    """Return the bucket of a minute, such as `2026-04-19-09-00` (UTC)."""
    return (_EPOCH + timedelta(minutes=minute)).strftime("%Y-%m-%d-%H-%M")


def shard_of(id_: str, shards: int) -> int:
    """Return the shard of a job within its minute, from 0; it depends on the id alone."""
    return crc32(id_.encode()) % shards


@dataclass(frozen=True, kw_only=True, slots=True)
class RowKey:
    """The primary key of a row.

    Attributes:
        bucket: the minute in which it is due.
        shard: its part of the minute.
        due_at: ms UTC.
    """

    bucket: str
    shard: int
    due_at: int
    id: str


def place_of(id_: str, due_at: int, shards: int) -> RowKey:
    """Return the place of a job."""
    return RowKey(
        bucket=bucket_name(minute_of(due_at)), shard=shard_of(id_, shards), due_at=due_at, id=id_
    )


def is_far(job: NewJob, now: int, *, horizon_ms: int, margin_ms: int) -> bool:
    """Return whether a job belongs in the calendar; jobs beyond the index's expiry do not.

    Args:
        horizon_ms: how far the leader reads ahead.
        margin_ms: minimum time beyond the horizon, so that the row is written in time.
    """
    if job.due_at is None or job.entry is not None or len(job.args) > MOST_ARGS:
        return False
    return horizon_ms + margin_ms < job.due_at - now <= FARTHEST_MS


def opened_through(now: int, horizon_ms: int) -> int:
    """Return the last minute to read ahead now."""
    return minute_of(now + horizon_ms)


def closed_through(read_at: int) -> int:
    """Return the last minute that is done if a read now finds it empty."""
    return minute_of(read_at - LINGER_MS) - 1


def deletion_stamp(read_at: int) -> int:
    """Return the timestamp, in microseconds, for deleting a partition read at this time."""
    return (read_at - GUARD_MS) * 1000


def write_stamp(now: int) -> int:
    """Return the timestamp, in microseconds, of a row written now."""
    return now * 1000


def index_seconds(due_at: int, now: int) -> int:
    """Return the TTL of a job's index entry: until a day after it is due."""
    return (due_at - now + LEAST_KEPT_MS) // 1000 + 1


_decoder = msgspec.msgpack.Decoder(NewJob)
_encode = msgspec.msgpack.Encoder().encode

_PLAIN = NewJob(id="", kind="")
_APART = {"id", "due_at", "policy", "gates"}
"""Fields that are in the row's key, or are encoded separately."""
_OWN = tuple(name for name in field_names(NewJob) if name not in _APART)


def row_of(job: NewJob) -> bytes:
    """Encode a job for its row; the id and due time are in the row's key."""
    fields: dict[str, Any] = {"id": ""}
    for name in _OWN:
        value = getattr(job, name)
        if name == "kind" or value != getattr(_PLAIN, name):
            fields[name] = value
    if job.gates:
        fields["gates"] = _gates(job.gates)
    if job.policy is not DEFAULT_POLICY and job.policy != DEFAULT_POLICY:
        fields["policy"] = _policy(job.policy)
    return _encode(fields)


def job_of(id_: str, due_at: int, row: bytes | None) -> NewJob:
    """Decode the job of a row, with a retention of at least a day after its end.

    Raises:
        InvalidValue: this version cannot decode the row.
    """
    try:
        job = _decoder.decode(row or b"")
    except msgspec.DecodeError as error:
        message = f"the row of job {id_} cannot be decoded: {error}"
        raise InvalidValue(
            message, hint="it was not written by Headway, or by a newer one"
        ) from None
    return job.changed(id=id_, due_at=due_at, policy=_kept(job.policy))


@lru_cache(1024)
def _kept(policy: JobPolicy) -> JobPolicy:
    """Return the policy with the minimum retention.

    Equal policies become one object, because a store writes each policy of a batch once.
    """
    if policy.keep_ms >= LEAST_KEPT_MS:
        return policy
    return replace(policy, keep_ms=LEAST_KEPT_MS)


@lru_cache(1024)
def _policy(policy: JobPolicy) -> Mapping[str, Any]:
    fields = _differing(policy, DEFAULT_POLICY)
    if policy.retry != DEFAULT_POLICY.retry:
        fields["retry"] = _differing(policy.retry, DEFAULT_POLICY.retry)
    return fields


@lru_cache(1024)
def _gates(gates: tuple[GateUse, ...]) -> list[Mapping[str, Any]]:
    plain = GateUse(name="", template="")
    return [{**_differing(one, plain), "name": one.name, "template": one.template} for one in gates]


def _differing(value: Hashable, plain: Hashable) -> dict[str, Any]:
    names = field_names(type(value))
    return {name: got for name in names if (got := getattr(value, name)) != getattr(plain, name)}


@dataclass(frozen=True, kw_only=True, slots=True)
class CalendarProgress:
    """How far the calendar has been read, and counts since it was created.

    Attributes:
        shards: fixed when the calendar was created.
        done_through: the last minute that is not read again.
        read_through: the last minute that was read at least once.
        enqueued: jobs created in the store; the other rows' jobs were there before.
        late: rows found in a minute that had been read before.
        refused: rows that the store can never accept; they are in a table of their own.
        leader: holder that read last.
        seen_at: when it read last, ms UTC; None if never.
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


def ahead_ms(progress: CalendarProgress, now: int) -> int:
    """Return how far ahead of now the calendar has been read; 0 if it is behind."""
    return max(0, (progress.read_through + 1) * MINUTE_MS - now)


async def load_progress(link: Link) -> CalendarProgress | None:
    """Return the calendar's progress; None if it was never used."""
    rows = (await link.run(Cql.GET_PROGRESS)).rows
    if not rows:
        return None
    *numbers, leader, seen_at = rows[0]
    shards, done, read, rows_read, enqueued, late, refused = (one or 0 for one in numbers)
    return CalendarProgress(
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


async def begin(link: Link, now: int) -> CalendarProgress:
    """Return the calendar's progress; create it if missing, starting at now.

    Raises:
        InvalidValue: the calendar was created with a different number of shards.
        StoreError: Cassandra is unavailable or failed.
    """
    shards, start = link.settings.shards, closed_through(now)
    found = await load_progress(link)
    if found is None:
        await link.run(Cql.MAKE_PROGRESS, (shards, start, start))
        found = await load_progress(link)
    made = None if found is None else found.shards
    if found is None or made != shards:
        message = f"cassandra.shards is {shards}; this calendar was created with {made}"
        raise InvalidValue(message, hint="set that number, or another `calendar`")
    return found
