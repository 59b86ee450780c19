"""Read the calendar ahead, on the leader, and move its jobs into the store.

For each partition: read it, create its jobs in the store by their ids, delete it with the timestamp
of the read minus a guard, and read it again until it is empty. If this is interrupted at any step,
the next leader starts at the first minute that is not known to be empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from headway.bridges.cassandra.calendar import Send, key_of
from headway.bridges.cassandra.link import Cql, Link, ms_of
from headway.bridges.cassandra.rows import (
    CalendarProgress,
    RowKey,
    begin,
    bucket_name,
    closed_through,
    deletion_stamp,
    job_of,
    opened_through,
    write_stamp,
)
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.errors import BacklogFull, CallerError, HeadwayError, InvalidValue, UnknownGate
from headway.core.job import NewJob
from headway.runtime.timing import Timing

LEASE_MS = 15_000
PARTITIONS_AT_ONCE = 4
MOST_READS = 100
"""Maximum consecutive reads of a partition; rows that still arrive are read in the next round."""
SAVE_EVERY_S = 1.0
TEMPORARY = (UnknownGate, BacklogFull)
"""Errors with which the store refuses a job now, but may accept it later."""

_log = logging.getLogger("headway.cassandra")


@dataclass(slots=True)
class _Row:
    """A row as read; its timestamp is in microseconds, or None if it has no value."""

    place: RowKey
    job: bytes | None
    stamp: int | None


@dataclass(slots=True)
class _Found:
    """The result of reading a partition.

    Attributes:
        moved: rows that may be deleted, with their timestamps.
        held: whether some rows cannot move now.
    """

    rows: int = 0
    moved: list[tuple[RowKey, int | None]] = field(default_factory=list[tuple[RowKey, int | None]])
    held: bool = False


class _NotLeading(Exception):
    """Another reader leads."""


class Reader:
    """A reader of the calendar; of all readers of a store, only the leader reads.

    Attributes:
        progress: progress after the last round; None before the first.
    """

    def __init__(
        self, link: Link, store: Store, timing: Timing, *, send: Send | None = None
    ) -> None:
        """Create a reader without connecting.

        Args:
            send: creates up to 1000 jobs in the store (default: its `enqueue`).
        """
        self.progress: CalendarProgress | None = None
        self._link = link
        self._store = store
        self._timing = timing
        self._send: Send = send or store.enqueue
        self._holder = uuid4().hex
        self._role = f"calendar {link.settings.keyspace}.{link.settings.calendar}"
        self._term: int | None = None
        self._led_at = self._saved_at = 0.0
        self._free = asyncio.Semaphore(PARTITIONS_AT_ONCE)

    async def run(self) -> None:
        """Read ahead until cancelled."""
        while True:
            try:
                await self.round()
            except HeadwayError as error:
                _log.warning("calendar round failed: %s", error)
            except Exception:  # noqa: BLE001  (it may be any bug)
                # Keep running: later rounds must not wait for a restart of this process.
                _log.exception("calendar round failed")
            await self._timing.pause(self._link.settings.every / 1000)

    async def round(self) -> bool:
        """Read all open minutes once, earliest first, if this reader leads.

        Returns:
            Whether this reader leads.

        Raises:
            HeadwayError: the store or Cassandra failed; the next round reads the rest.
        """
        try:
            await self._lead(new_round=True)
            await self._round()
        except _NotLeading:
            self._term = self.progress = None
            return False
        return True

    # ------------------------------------------------------------------------------ internals

    async def _round(self) -> None:
        now = await self._now()
        if self.progress is None:
            self.progress = await begin(self._link, now)
        last = opened_through(now, self._link.settings.horizon)
        whole = True
        for minute in range(self.progress.done_through + 1, last + 1):
            await self._lead()
            read_at = await self._now()
            shards = range(self.progress.shards)
            empty = await _all(self._drain(minute, shard, read_at) for shard in shards)
            # Minutes after one with rows that cannot move yet are read, but not done.
            whole = whole and all(empty)
            progress = self.progress
            if whole and minute <= closed_through(read_at):
                progress = replace(progress, done_through=minute)
            read_through = max(minute, progress.read_through)
            self.progress = replace(
                progress, read_through=read_through, leader=self._holder, seen_at=read_at
            )
            await self._save(last=minute == last)

    async def _drain(self, minute: int, shard: int, read_at: int) -> bool:
        """Move the jobs of one partition into the store.

        Returns:
            Whether the last read found nothing.
        """
        bucket = bucket_name(minute)
        async with self._free:
            late = self.progress is not None and minute <= self.progress.read_through
            for _ in range(MOST_READS):
                found = await self._read(bucket, shard)
                self._count(rows_read=found.rows, late=found.rows if late else 0)
                if not found.rows:
                    return True
                await self._delete(bucket, shard, found, read_at)
                if found.held:
                    return False
                late = True
        return False

    async def _read(self, bucket: str, shard: int) -> _Found:
        """Read a partition page by page, and move each page's jobs into the store."""
        found = _Found()
        after: bytes | None = None
        while True:
            page = await self._link.run(Cql.READ_BUCKET, (bucket, shard), after)
            rows = [
                _Row(
                    place=RowKey(bucket=bucket, shard=shard, due_at=ms_of(due), id=str(id_)),
                    job=job,
                    stamp=stamp,
                )
                for due, id_, job, stamp in page.rows
            ]
            held = await self._move(rows)
            found.rows += len(rows)
            found.held = found.held or bool(held)
            found.moved += [(row.place, row.stamp) for row in rows if row.place.id not in held]
            if page.after is None:
                return found
            after = page.after
            await self._lead()

    async def _move(self, rows: Sequence[_Row]) -> set[str]:
        """Create the jobs of rows in the store; put aside rows that it can never accept.

        Returns:
            The ids of rows that cannot move now, and stay.
        """
        jobs: list[NewJob] = []
        refused: dict[str, CallerError] = {}
        for row in rows:
            try:
                jobs.append(job_of(row.place.id, row.place.due_at, row.job))
            except InvalidValue as error:
                refused[row.place.id] = error
        refused |= await self._enqueue(jobs)
        held = {id_: why for id_, why in refused.items() if isinstance(why, TEMPORARY)}
        for id_, why in list(held.items())[:1]:
            _log.warning("calendar rows held: rows=%d id=%s error=%s", len(held), id_, why)
        await self._put_aside(
            [(row, refused[row.place.id]) for row in rows if row.place.id in refused.keys() - held]
        )
        return set(held)

    async def _enqueue(self, jobs: Sequence[NewJob]) -> dict[str, CallerError]:
        """Create jobs in the store, and return the errors of refused jobs by id."""
        if not jobs:
            return {}
        try:
            made = await self._send(jobs)
        except CallerError as error:
            if len(jobs) == 1 or (
                isinstance(error, BacklogFull) and len({job.lane for job in jobs}) == 1
            ):
                return {job.id: error for job in jobs}
        else:
            self._count(enqueued=sum(one.created for one in made))
            return {}
        # A batch is all or nothing: halve it to isolate the refused jobs, by lane since one lane
        # may be full.
        jobs = sorted(jobs, key=lambda job: job.lane)
        half = len(jobs) // 2
        return {**await self._enqueue(jobs[:half]), **await self._enqueue(jobs[half:])}

    async def _put_aside(self, rows: Sequence[tuple[_Row, CallerError]]) -> None:
        if not rows:
            return
        now = await self._now()
        await self._link.run_many(
            Cql.PUT_REFUSED,
            [
                (UUID(row.place.id), row.place.due_at, row.job, str(why), now, write_stamp(now))
                for row, why in rows
            ],
        )
        self._count(refused=len(rows))
        for row, why in rows:
            _log.error("calendar row refused: id=%s error=%s", row.place.id, why)

    async def _delete(self, bucket: str, shard: int, found: _Found, read_at: int) -> None:
        """Delete moved rows, and no row that arrived after the read.

        A row younger than the partition's deletion is deleted by its own timestamp; so are all
        moved rows if some rows stay.
        """
        stamp = deletion_stamp(read_at)
        alone = [
            (own or write_stamp(read_at), *key_of(place))
            for place, own in found.moved
            if found.held or own is None or own > stamp
        ]
        await self._link.run_many(Cql.DROP_ROW, alone)
        if len(alone) < len(found.moved):
            await self._link.run(Cql.DROP_BUCKET, (stamp, bucket, shard))

    # ------------------------------------------------------------------- the leader's own state

    async def _lead(self, *, new_round: bool = False) -> None:
        """Renew the lead.

        Args:
            new_round: whether a round starts; only then may this reader take over another leader's
                progress.

        Raises:
            _NotLeading: another reader leads, or has led in the meantime.
        """
        now = self._timing.monotonic()
        if self._term is not None and now - self._led_at < LEASE_MS / 3000:
            return
        lease_ms = max(LEASE_MS, 3 * self._link.settings.every)
        term = await self._store.lead(self._role, self._holder, lease_ms)
        if term is None or (term != self._term and not new_round):
            raise _NotLeading
        if term != self._term:
            _log.info("calendar leader: term=%d holder=%s", term, self._holder)
            self.progress = None
        self._term, self._led_at = term, now

    async def _save(self, *, last: bool) -> None:
        """Save the progress, within a long round at most once per `SAVE_EVERY_S`."""
        now, made = self._timing.monotonic(), self.progress
        if made is None or made.seen_at is None:
            return
        if not last and now - self._saved_at < SAVE_EVERY_S:
            return
        values = (made.done_through, made.read_through, made.rows_read, made.enqueued)
        counts = (made.late, made.refused, made.leader, made.seen_at)
        await self._link.run(Cql.PUT_PROGRESS, (write_stamp(made.seen_at), *values, *counts))
        self._saved_at = now

    def _count(self, **more: int) -> None:
        if self.progress is not None:
            sums = {name: getattr(self.progress, name) + n for name, n in more.items()}
            self.progress = replace(self.progress, **sums)

    async def _now(self) -> int:
        return (await self._store.read(StatsQuery())).now


async def _all(work: Iterable[Coroutine[Any, Any, bool]]) -> list[bool]:
    """Run all concurrently, and raise the first error once all have finished."""
    ends = await asyncio.gather(*work, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return [bool(end) for end in ends]
