"""How far the calendar was read: one row in Cassandra, that outlives its leader."""

from __future__ import annotations

from dataclasses import dataclass

from headway.bridges.cassandra.buckets import MINUTE_MS, closed_through
from headway.bridges.cassandra.link import Link, ms_of
from headway.bridges.cassandra.tables import Cql
from headway.core.errors import InvalidValue


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
    """How far the calendar was read; None if it was never begun.

    Raises:
        StoreUnavailable: Cassandra does not answer.
    """
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
