"""The calendar's interface for producers and operators: write, find and move jobs by id.

An operator's action first moves the job into the store, so that each action is one of the store's
verbs and is on its trail. The leader may read the same job ahead at the same time; that creates no
second job, because the store knows the id.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID, uuid4

from headway.bridges.cassandra.link import Cql, Link, ms_of
from headway.bridges.cassandra.rows import (
    LONGEST_WRITE_MS,
    RowKey,
    begin,
    index_seconds,
    is_far,
    job_of,
    place_of,
    row_of,
    write_stamp,
)
from headway.contract.operate import Acted, ActReply, ActRequest, Edit, Verb
from headway.contract.store import Sent, Store
from headway.contract.views import JobsQuery, JobView, StatsQuery
from headway.core.check import check_jobs, is_job_id
from headway.core.errors import CallerError, IdConflict, InvalidValue, KeyConflict
from headway.core.job import MAX_BATCH, NewJob, body_hash
from headway.core.state import State

IDS_PER_READ = 10
"""Index entries read per statement; few, because the coordinator fetches most from other nodes."""

_log = logging.getLogger("headway.cassandra")

Send = Callable[[Sequence[NewJob]], Awaitable[Sequence[Sent]]]
"""A function that creates any number of jobs in the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CalendarJob:
    """A job in the calendar.

    Attributes:
        stamp: timestamp of its row, in microseconds; a deletion with it deletes only this row.
    """

    place: RowKey
    job: NewJob
    stamp: int


class _Row(NamedTuple):
    """A row as read, with its timestamp."""

    place: RowKey
    job: bytes
    stamp: int

    def decoded(self) -> CalendarJob:
        """Decode its job.

        Raises:
            InvalidValue: this version cannot decode it.
        """
        job = job_of(self.place.id, self.place.due_at, self.job)
        return CalendarJob(place=self.place, job=job, stamp=self.stamp)


class Calendar:
    """Jobs due far ahead, in Cassandra, and the others in the store."""

    def __init__(self, link: Link, store: Store) -> None:
        """Create the calendar without connecting.

        Args:
            store: receives jobs before they are due; its clock decides which are far.
        """
        self._link = link
        self._store = store
        self._has_progress = False

    async def enqueue(self, jobs: Sequence[NewJob], *, send: Send | None = None) -> list[Sent]:
        """Create jobs; on return, each is in the calendar or in the store.

        A call can be repeated after any error with the effect of one execution, if ids and due
        times are the same. A key is unique among the jobs of the calendar, and among those of the
        store.

        Args:
            send: creates jobs that are due soon (default: the store's `enqueue`).

        Returns:
            For each job, in this order, which job exists and whether this call created it.

        Raises:
            CallerError: a job is refused, as by `Store.enqueue`; others may have been created.
            StoreError: the store or Cassandra failed; some jobs may have been created.
        """
        send = send or self._send
        now = await self._now()
        far = [job for job in jobs if self._is_far(job, now)]
        check_jobs(far)
        made = await self._put(far, now, send) if far else []
        near = [job for job in jobs if not self._is_far(job, now)]
        sent = iter(await send(near)) if near else iter(())
        put = iter(made)
        return [next(put) if self._is_far(job, now) else next(sent) for job in jobs]

    async def find(self, ids: Iterable[str]) -> dict[str, CalendarJob]:
        """Return those of these jobs that are in the calendar, by id.

        Raises:
            InvalidValue: this version cannot decode the row of one.
        """
        return {row.place.id: row.decoded() for row in await self._rows(ids)}

    async def view(self, id_: str) -> JobView | None:
        """Return the view of a job in the calendar, as a scheduled job."""
        found = (await self.find([id_])).get(id_)
        if found is None:
            return None
        job = found.job
        return JobView(
            id=id_,
            kind=job.kind,
            lane=job.lane,
            tenant=job.tenant,
            subject=job.subject,
            stage=job.stage,
            state=State.SCHEDULED,
            shown=State.SCHEDULED,
            priority=job.priority,
            due_at=found.place.due_at,
            created_at=found.stamp // 1000,
            expires_at=job.expires_at,
            finished_at=None,
            deadline_at=None,
            args=job.args,
            result=None,
            progress=None,
            key=job.key,
            gates=job.gates,
            policy=job.policy,
            run=0,
            attempt=0,
            life=1,
            reason="",
            error="",
            parked_at=None,
            worker=None,
            cancel_requested=False,
            in_doubt=False,
            entry=None,
            fired_at=None,
            cascade=None,
            seq=0,
        )

    async def fetch(self, ids: Iterable[str], *, send: Send | None = None) -> list[str]:
        """Move jobs into the store for an operator's action; their due times stay the same.

        Returns:
            The ids of jobs that were in the calendar.

        Raises:
            CallerError: the store refuses a job, such as because its lane is full; it stays here.
            StoreError: the store or Cassandra failed; repeat the call.
        """
        found = await self.find(ids)
        await self._move(found.values(), send or self._send)
        return list(found)

    async def cancel(self, ids: Sequence[str], author: str, reason: str = "") -> list[ActReply]:
        """Cancel jobs, wherever they are; the store keeps a record of each.

        Args:
            ids: up to 1000. A job whose row this version cannot decode is refused.

        Raises:
            StoreError: the store or Cassandra failed; repeat the call.
        """
        return await self._act(ids, Verb.CANCEL, Edit(), author, reason)

    async def reschedule(
        self, ids: Sequence[str], due_at: int, author: str, reason: str = ""
    ) -> list[ActReply]:
        """Change the due time of jobs; they are then in the store, however far ahead they are due.

        Args:
            ids: up to 1000. A job whose row this version cannot decode is refused.

        Raises:
            StoreError: the store or Cassandra failed; repeat the call.
        """
        return await self._act(ids, Verb.EDIT, Edit(due_at=due_at), author, reason)

    async def retry_refused(self) -> int:
        """Send refused rows to the store again, one by one.

        Returns:
            How many the store accepted; the others stay in the table of refused rows.

        Raises:
            StoreError: the store or Cassandra failed; repeat the call.
        """
        sent = 0
        after: bytes | None = None
        while True:
            page = await self._link.run(Cql.LIST_REFUSED, (), after)
            for id_, due, row, _, stamp in page.rows:
                with suppress(CallerError):
                    await self._store.enqueue([job_of(str(id_), ms_of(due), row)])
                    await self._link.run(Cql.DROP_REFUSED, (stamp, id_))
                    sent += 1
            after = page.after
            if after is None:
                return sent

    # ------------------------------------------------------------------------------ internals

    async def _act(
        self, ids: Sequence[str], verb: Verb, edit: Edit, author: str, reason: str
    ) -> list[ActReply]:
        found: list[CalendarJob] = []
        refused: set[str] = set()
        for row in await self._rows(ids):
            try:
                found.append(row.decoded())
            except InvalidValue as error:
                _log.warning("calendar row not moved: id=%s error=%s", row.place.id, error)
                refused.add(row.place.id)
        await self._move(found, self._send)
        request = ActRequest(
            request=str(uuid4()),
            ids=tuple(ids),
            verb=verb,
            edit=edit,
            author=author,
            reason=reason,
        )
        return [
            replace(one, answer=Acted.REFUSED, state=State.SCHEDULED)
            if one.answer is Acted.UNKNOWN and one.id in refused
            else one
            for one in await self._store.act(request)
        ]

    async def _rows(self, ids: Iterable[str]) -> list[_Row]:
        wanted = [one for one in dict.fromkeys(ids) if is_job_id(one)]
        index, shards = await self._index_of(wanted), self._link.settings.shards
        places = [place_of(one, ms_of(index[one][0]), shards) for one in wanted if one in index]
        found = await self._link.run_many(Cql.GET_ROW, [key_of(place) for place in places])
        return [_Row(place, *rows[0]) for place, rows in zip(places, found, strict=True) if rows]

    async def _move(self, jobs: Collection[CalendarJob], send: Send) -> None:
        if not jobs:
            return
        # The store first: after a crash in between, the job is in both places, and reading its row
        # creates no second job.
        await send([one.job for one in jobs])
        await self._link.run_many(Cql.DROP_ROW, [(one.stamp, *key_of(one.place)) for one in jobs])
        # From now on the store decides how long a key stays taken.
        keys = [(_key_name(one.job), UUID(one.job.id)) for one in jobs if one.job.key is not None]
        await self._link.run_many(Cql.FREE_KEY, keys)

    def _is_far(self, job: NewJob, now: int) -> bool:
        settings = self._link.settings
        return is_far(job, now, horizon_ms=settings.horizon, margin_ms=settings.margin)

    async def _put(self, jobs: Sequence[NewJob], now: int, send: Send) -> list[Sent]:
        """Write jobs that are due far ahead.

        Raises:
            IdConflict: two jobs have the same id and different bodies; nothing was written.
        """
        if not self._has_progress:
            await begin(self._link, now)
            self._has_progress = True
        jobs, taken = await self._with_keys(jobs, now)
        taken |= await self._taken([job for job in jobs if job.id not in taken])
        new: dict[str, NewJob] = {}
        for job in jobs:
            if job.id not in taken and new.setdefault(job.id, job).body_hash() != job.body_hash():
                raise IdConflict(_other_body(job.id), hint="use a new id")
        shards, stamp = self._link.settings.shards, write_stamp(now)
        # The index first, so that a job whose row is acknowledged can be found by its id.
        await self._link.run_many(
            Cql.PUT_INDEX,
            [(*_index(id_, job), _seconds(job, now), stamp) for id_, job in new.items()],
        )
        rows = [
            (*key_of(place_of(id_, job.due_at or now, shards)), row_of(job), stamp)
            for id_, job in new.items()
        ]
        await self._link.run_many(Cql.PUT_ROW, rows)
        if new and await self._now() - now >= LONGEST_WRITE_MS:
            # The partition may have been read and deleted before a slow row arrived there.
            await send(list(new.values()))
        return [Sent(job.id, created=new.pop(job.id, None) is not None) for job in jobs]

    async def _with_keys(
        self, jobs: Sequence[NewJob], now: int
    ) -> tuple[Sequence[NewJob], set[str]]:
        """Return the jobs, each with the id its key maps to, and the ids that are in the store.

        Raises:
            KeyConflict: a key names a job with a different body; nothing was written.
        """
        keyed = [job for job in jobs if job.key is not None]
        holders: dict[str, tuple[str, bytes]] = {}
        for job in keyed:
            holders.setdefault(_key_name(job), (job.id, job.body_hash()))
            _with_held_id(job, holders)
        index = await self._index_of(list(holders))
        # Jobs that will be refused come first: keys that were claimed before would stay taken by
        # jobs that are never created.
        parts: tuple[list[NewJob], list[NewJob]] = [], []
        for job in keyed:
            body = index[_key_name(job)][1] if _key_name(job) in index else job.body_hash()
            parts[bytes(body) == job.body_hash()].append(job)
        stored: set[str] = set()
        for part in parts:
            stored |= await self._claim_keys(part, holders, now)
            for job in part:
                _with_held_id(job, holders)
        return [_with_held_id(job, holders) for job in jobs], stored

    async def _claim_keys(
        self, keyed: Sequence[NewJob], holders: dict[str, tuple[str, bytes]], now: int
    ) -> set[str]:
        """Claim the keys that are free, and record the job and body that each key maps to.

        Returns:
            The ids of those jobs that are in the store.
        """
        claimed: set[str] = set()
        claims = [(*_index(_key_name(job), job), _seconds(job, now)) for job in keyed]
        for job, rows in zip(keyed, await self._link.run_many(Cql.CLAIM_KEY, claims), strict=True):
            if rows[0][0]:
                claimed.add(job.id)
                holders[_key_name(job)] = job.id, job.body_hash()
            else:
                _, _, body, id_, *_ = rows[0]
                holders[_key_name(job)] = str(id_), bytes(body)
        # The store last: a key that was free because its job has been moved is there by now.
        stored: set[str] = set()
        for job in keyed:
            held = await self._store.read(JobsQuery(key=job.key, tenant=job.tenant, limit=1))
            for one in held.rows:
                body = body_hash(one.kind, one.lane, one.tenant, one.subject, one.args)
                holders[_key_name(job)] = one.id, body
                stored.add(one.id)
                if job.id in claimed:
                    await self._link.run(Cql.FREE_KEY, (_key_name(job), UUID(job.id)))
        return stored

    async def _index_of(self, ids: Sequence[str]) -> dict[str, tuple[datetime, bytes]]:
        """Return the due time and body hash of each id in the index."""
        parts = [(ids[n : n + IDS_PER_READ],) for n in range(0, len(ids), IDS_PER_READ)]
        found = await self._link.run_many(Cql.GET_INDEX, parts)
        return {id_: (due, body) for rows in found for id_, due, body in rows}

    async def _taken(self, jobs: Sequence[NewJob]) -> set[str]:
        """Return the ids of jobs that exist already.

        An entry of the index proves nothing by itself, because its writer may have been killed
        before it wrote the row. A job exists if its row does, or if the store knows it.

        Raises:
            IdConflict: an id names a job with a different body; nothing was written.
        """
        index = await self._index_of([job.id for job in jobs])
        known = [job.id for job in jobs if job.id in index]
        for job in jobs:
            if job.id in index and bytes(index[job.id][1]) != job.body_hash():
                raise IdConflict(_other_body(job.id), hint="use a new id")
        taken = {row.place.id for row in await self._rows(known)}
        moved = [one for one in known if one not in taken]
        for start in range(0, len(moved), MAX_BATCH):
            ids = tuple(moved[start : start + MAX_BATCH])
            page = await self._store.read(JobsQuery(ids=ids, limit=MAX_BATCH))
            taken.update(one.id for one in page.rows)
        return taken

    async def _send(self, jobs: Sequence[NewJob]) -> list[Sent]:
        replies: list[Sent] = []
        for start in range(0, len(jobs), MAX_BATCH):
            replies += await self._store.enqueue(jobs[start : start + MAX_BATCH])
        return replies

    async def _now(self) -> int:
        return (await self._store.read(StatsQuery())).now


def key_of(place: RowKey) -> tuple[str, int, int, UUID]:
    """Return the primary key of a row, in the order of the statements."""
    return place.bucket, place.shard, place.due_at, UUID(place.id)


def _index(name: str, job: NewJob) -> tuple[str, UUID, int | None, bytes]:
    """Return an entry of the index."""
    return name, UUID(job.id), job.due_at, job.body_hash()


def _seconds(job: NewJob, now: int) -> int:
    return index_seconds(job.due_at or now, now)


def _key_name(job: NewJob) -> str:
    """Return a key's name in the index; the tenant's length makes it unambiguous."""
    return f"key {len(job.tenant)} {job.tenant} {job.key}"


def _with_held_id(job: NewJob, holders: Mapping[str, tuple[str, bytes]]) -> NewJob:
    if job.key is None:
        return job
    id_, body = holders[_key_name(job)]
    if body != job.body_hash():
        message = f"the key {job.key!r} names job {id_}, which has a different body"
        raise KeyConflict(message, hint="kind, lane, subject and arguments must be the same")
    return job if id_ == job.id else job.changed(id=id_)


def _other_body(id_: str) -> str:
    return f"the id {id_} names a job with a different body"
