"""Where a job lies in the calendar, whether it goes there, and which timestamps are written.

All times are the store's, in ms UTC. Only this arithmetic decides; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zlib import crc32

from headway.core.job import DAY_MS, NewJob

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
FARTHEST_MS = 5 * 365 * DAY_MS
"""What is due later stays in the store: Cassandra's expiry of the index ends in 2038 or 2106."""
MOST_ARGS = 65_536
"""Bytes of arguments; jobs with more stay in the store, for a thousand rows are read at a time."""
LEAST_KEPT_MS = DAY_MS
"""For how long after its end a job that came from the calendar is kept, at least.

Until then the store knows its id, so that a row that is read again makes no second job.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def minute_of(at: int) -> int:
    """The minute of a moment, counted from 1970."""
    return at // MINUTE_MS


def bucket_name(minute: int) -> str:
    """The partition of a minute, as `2026-04-19-09-00` (UTC)."""
    return (_EPOCH + timedelta(minutes=minute)).strftime("%Y-%m-%d-%H-%M")


def shard_of(id_: str, shards: int) -> int:
    """The shard of a job within its minute, from 0; by its id, so that it is found again."""
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
    """Where a job lies that is due then."""
    return Place(
        bucket=bucket_name(minute_of(due_at)), shard=shard_of(id_, shards), due_at=due_at, id=id_
    )


def is_far(job: NewJob, now: int, *, horizon_ms: int, margin_ms: int) -> bool:
    """Return whether a job goes to the calendar.

    Args:
        horizon_ms: how far the leader reads ahead.
        margin_ms: how much longer than that there must be, so that it is written in time.
    """
    if job.due_at is None or job.entry is not None or len(job.args) > MOST_ARGS:
        return False
    return horizon_ms + margin_ms < job.due_at - now <= FARTHEST_MS


def opened_through(now: int, horizon_ms: int) -> int:
    """The last minute that is read ahead now."""
    return minute_of(now + horizon_ms)


def closed_through(read_at: int) -> int:
    """The last minute that need not be read again, if nothing was found in it at this time."""
    return minute_of(read_at - LINGER_MS) - 1


def deletion_stamp(read_at: int) -> int:
    """The timestamp, in microseconds, with which a partition is deleted that was read then."""
    return (read_at - GUARD_MS) * 1000


def write_stamp(now: int) -> int:
    """The timestamp, in microseconds, of a row that is written now."""
    return now * 1000


def index_seconds(due_at: int, now: int) -> int:
    """For how long the index knows a job: until a day after it is due."""
    return (due_at - now + LEAST_KEPT_MS) // 1000 + 1
