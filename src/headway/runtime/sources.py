"""Sources: keep the store in sync with an application's tables.

Work in flight is restored before anything is claimed, so that no job takes a phone line that is in
use, or calls someone who is on the phone. Pending work follows: missing jobs are spread over a
window that grows with their number, so that a lost store does not come back as one large burst.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypedDict, TypeVar, cast
from uuid import uuid4

from headway.contract.extensions import Repairable
from headway.contract.store import InFlight, Store
from headway.contract.views import JobsQuery, StatsQuery
from headway.core.duration import Duration, parse_duration
from headway.core.errors import (
    BacklogFull,
    CallerError,
    HeadwayError,
    IdConflict,
    InvalidValue,
    KeyConflict,
    PayloadTooLarge,
)
from headway.core.gates.spec import check_count
from headway.core.instant import Instant, parse_instant
from headway.core.job import MAX_BATCH, NewJob, check_made
from headway.core.naming import check_name, counted
from headway.core.retry import draw
from headway.runtime.kind_options import refuse_unknown
from headway.runtime.timing import Timing, persist
from headway.runtime.worker.outcomes import check_function

REBUILD_LEASE_MS = 60_000
"""Lease on the rebuild of a store, renewed with each page."""
SCAN_LEASE_MS = 15_000
"""Lease on a scan of a source, renewed with each page. It may be short, so that another process
takes over soon after a crash, because two scans at once insert nothing twice."""
RETRY_AFTER = 2.0
"""Seconds until work in flight is read again after reading or restoring it failed."""

_log = logging.getLogger("headway.sources")


def _is_full(refused: Sequence[CallerError]) -> bool:
    return bool(refused) and isinstance(refused[-1], BacklogFull)


class SourceSync:
    """Keeps a store in sync with an app's sources."""

    def __init__(
        self,
        store: Store,
        sources: Sequence[Source],
        declare: Callable[[], Awaitable[None]],
        *,
        timing: Timing,
        name: str,
    ) -> None:
        self._store = store
        self._sources = sources
        self._declare = declare
        self._timing = timing
        self._name = name
        self._holder = uuid4().hex
        self._rebuild_lock = asyncio.Lock()

    async def begin(self) -> None:
        """Restore all work in flight, retrying until done; nothing may be claimed before."""
        await self._until_done(lambda: self._restore_all(None))

    async def rebuild(self) -> None:
        """Make a store usable that was lost, or is an older state of itself.

        One of the processes that notice it restores the work in flight and then starts a new epoch;
        the others wait. Does nothing if the store is not suspect.

        Raises:
            StoreError: the store cannot be repaired.
        """
        store = self._store
        if not isinstance(store, Repairable):
            return
        async with self._rebuild_lock:
            await self._until_done(lambda: self._rebuild(cast("Repairable", store)))

    async def run(self, source: Source) -> None:
        """Scan a source periodically, until cancelled; only one worker at a time does.

        A lost store is also noticed here, because a worker whose handlers are all busy rarely
        claims.
        """
        role = f"source:{source.name}"
        while True:
            rest_ms = source.every_ms
            try:
                await self.rebuild()
                if await self._leads(role, SCAN_LEASE_MS):
                    await self.scan(source)
                    # So that the next leader, even after a restart, waits until a scan is due.
                    await self._leads(role, source.every_ms)
                else:
                    rest_ms //= 4
            except Exception as error:  # noqa: BLE001  (a user's source may raise anything)
                if isinstance(error, HeadwayError) and await self._is_lost():
                    # The store was lost between the rebuild and the scan: repeat both.
                    continue
                source.last = replace(source.last or SourceScan(), error=str(error))
                _log.error(
                    "source %s: %s: %s", source.name, type(error).__name__, error, exc_info=error
                )
            await self._timing.pause(rest_ms / 1000)

    async def scan(self, source: Source) -> SourceScan:
        """Scan a source, and create the jobs that the store lacks.

        Raises:
            InvalidValue: the source yielded something that is not a job with a key.
            CallerError: a job was refused; the others are created, unless their lane is full.
        """
        rows = missing = window_ms = 0
        refused: list[CallerError] = []
        async with aclosing(source.pending()) as pages:
            async for page in pages:
                jobs = [_checked(job) for job in page]
                now = (await self._store.read(StatsQuery())).now
                from_ms, rows = missing * 1000 // source.rate, rows + len(jobs)
                window_ms = (missing + len(jobs)) * 1000 // source.rate
                spread = [_spread(job, now, from_ms, window_ms) for job in jobs]
                missing += await self._enqueue(spread, refused)
                if _is_full(refused):
                    break
                await self._leads(f"source:{source.name}", SCAN_LEASE_MS)
        scan = SourceScan(rows=rows, missing=missing, window_ms=missing * 1000 // source.rate)
        source.last = scan
        if missing:
            _log.warning(
                "source %s: created %d missing of %s, spread over %g s",
                source.name,
                missing,
                counted(rows, "job"),
                scan.window_ms / 1000,
            )
        if refused:
            raise refused[0]
        return scan

    async def _enqueue(self, jobs: Sequence[NewJob], refused: list[CallerError]) -> int:
        """Create jobs without those that the store refuses.

        Args:
            refused: gets the error of each refused job, by halving the batch until it is alone; but
                not of one whose key the store has: its row has changed, and it stays as it is.

        Returns:
            How many were created.

        Raises:
            CallerError: the store refuses all jobs, such as a lost one, which knows no gates.
        """
        try:
            return sum(reply.created for reply in await self._store.enqueue(jobs))
        except (KeyConflict, IdConflict, InvalidValue, PayloadTooLarge, BacklogFull) as error:
            if len(jobs) == 1:
                if isinstance(error, KeyConflict):
                    _log.warning("the row of a source differs from its job: %s", error)
                else:
                    refused.append(error)
                return 0
        half = len(jobs) // 2
        created = await self._enqueue(jobs[:half], refused)
        if _is_full(refused):
            return created
        return created + await self._enqueue(jobs[half:], refused)

    async def _job_of_key(self, job: NewJob) -> str | None:
        """Return the id of the job that the store has under a job's key."""
        page = await self._store.read(JobsQuery(key=job.key, tenant=job.tenant))
        return page.rows[0].id if page.rows else None

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await persist(self._timing, "sources", work)
            except HeadwayError:
                raise
            except Exception as error:  # noqa: BLE001  (a user's source may raise anything)
                _log.error(
                    "jobs in flight not restored error=%r: no job is claimed until they are",
                    error,
                    exc_info=error,
                )
            await self._timing.pause(RETRY_AFTER)

    async def _rebuild(self, store: Repairable) -> None:
        while await store.suspicion() is not None:
            if not await self._leads("sources"):
                await self._timing.pause(RETRY_AFTER)
                continue
            _log.warning("rebuilding the store from the sources: it was lost or is an older state")
            await self._declare()
            await self._restore_all(store)
            if await store.suspicion() is not None:
                await store.new_epoch(self._name, "rebuilt from the sources")

    async def _is_lost(self) -> bool:
        store = self._store
        try:
            return isinstance(store, Repairable) and await store.suspicion() is not None
        except HeadwayError:
            return False

    async def _leads(self, role: str, lease_ms: int = REBUILD_LEASE_MS) -> bool:
        return await self._store.lead(role, self._holder, lease_ms) is not None

    async def _restore_all(self, suspect: Repairable | None) -> None:
        for source in self._sources:
            async with aclosing(source.under_way()) as pages:
                async for page in pages:
                    if suspect is not None:
                        await self._leads("sources")
                        if await suspect.suspicion() is None:
                            # Another process has rebuilt it while this one was suspended. The page
                            # may be old: its work may have ended in the store since.
                            return
                    flights = [_checked_in_flight(one) for one in page]
                    await self._restore(flights, newer=suspect is not None)

    async def _restore(self, page: list[InFlight], *, newer: bool) -> None:
        # `newer`, because an older state of the store may still have them queued.
        page = [replace(one, newer=newer) for one in page]
        try:
            replies = await self._store.restore(page)
        except KeyConflict:
            # Rows changed after their jobs were sent: those jobs are named by their ids.
            replies = await self._store.restore([await self._by_id(one) for one in page])
        made = sum(reply.created for reply in replies)
        if made:
            _log.warning("restored %s in flight, with their permits", counted(made, "job"))

    async def _by_id(self, one: InFlight) -> InFlight:
        known = await self._job_of_key(one.job)
        return one if known is None else replace(one, job=one.job.changed(id=known))


def _checked(job: Any) -> NewJob:  # noqa: ANN401  (whatever the source yields)
    if not isinstance(job, NewJob):
        message = f"a source yielded {job!r:.80}"
        raise InvalidValue(message, hint="yield what kind.make(...) returns")
    check_key(job)
    return job


def _checked_in_flight(one: Any) -> InFlight:  # noqa: ANN401  (whatever the source yields)
    if not isinstance(one, InFlight):
        message = f"a source of work in flight yielded {one!r:.80}"
        raise InvalidValue(message, hint="yield what hw.in_flight(...) returns")
    check_key(one.job)
    return one


def _spread(job: NewJob, now: int, from_ms: int, to_ms: int) -> NewJob:
    """Give a job that is due another due time, within a window from now; leave others unchanged.

    The place in the window is a hash of the job's key. Of a window that is too long for a job that
    expires, it is in the first half of the time until then.
    """
    if job.due_at is not None and job.due_at > now:
        return job
    if job.expires_at is not None:
        half = max(0, job.expires_at - now) // 2
        if to_ms > half:
            from_ms, to_ms = 0, half
    due_at = now + from_ms + int(draw(job.key or job.id) * (to_ms - from_ms))
    return job.changed(due_at=due_at)


def in_flight(
    job: NewJob,
    *,
    known_as: str,
    since: Instant,
    timeout: Duration,
    members: Mapping[str, str] | None = None,
) -> InFlight:
    """Describe a job whose work is already under way: it awaits a signal, and holds its permits.

    Args:
        job: created by a kind's `make`, with a key.
        known_as: key by which signals find the job.
        since: when the work started: an aware datetime or ISO 8601 with an offset.
        timeout: time from now until the deadline, as "30m" or a timedelta.
        members: the member that it holds in each pool, by the name of the pool.

    Raises:
        InvalidValue: the job has no key, or a value is not valid.
    """
    check_made(job)
    check_key(job)
    if not isinstance(cast("object", members), Mapping | None):
        message = f"members of in_flight for {job.key!r} are {members!r:.80}"
        raise InvalidValue(message, hint='pass a mapping by pool, such as {"numbers": "+15550001"}')
    return InFlight(
        job=job,
        signal_key=check_name(f"known_as of in_flight for {job.key!r}", known_as),
        since_at=parse_instant(since),
        deadline_ms=parse_duration(timeout),
        members={
            check_name("pool", pool): check_name(f"member of the pool {pool!r}", member)
            for pool, member in (members or {}).items()
        },
    )


def check_key(job: NewJob) -> None:
    """Check that a job of a source has a key.

    Raises:
        InvalidValue: it has none, so every scan would create it again.
    """
    if job.key is None:
        message = f"a source yielded a job of kind {job.kind!r} without a key"
        raise InvalidValue(message, hint="pass make(key=...), so that it is not created twice")


Function = TypeVar("Function", bound=Callable[..., Any])
RowsFunction = Callable[[], AsyncIterable[Any] | Iterable[Any]]


class SourceOptions(TypedDict, total=False):
    """Options of `@app.source`.

    Attributes:
        name: name of the source; defaults to the function's name.
        every: pause between two scans of the whole table; defaults to "1m".
        rate: maximum number of missing jobs per second made due; defaults to 100. The more are
            missing, the longer the window over which they are spread.
    """

    name: str
    every: Duration
    rate: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceScan:
    """The result of a scan of a source.

    Attributes:
        rows: number of jobs that the source yielded.
        missing: number of these that the store lacked and the scan created.
        window_ms: duration over which the missing jobs that were due were spread.
        error: why the scan failed; empty if it did not.
    """

    rows: int = 0
    missing: int = 0
    window_ms: int = 0
    error: str = ""


class Source:
    """A source, as declared by `@app.source`.

    Attributes:
        name: unique in the app.
        every_ms: pause between two scans.
        rate: maximum number of missing jobs made due per second.
        last: result of the last scan; None before the first.
    """

    def __init__(self, pending: RowsFunction, options: SourceOptions) -> None:
        """Create a source; it is not read yet.

        Raises:
            InvalidValue: an option is not valid.
        """
        refuse_unknown(options, SourceOptions, "a source has no option")
        self.name = check_name("source", options.get("name") or getattr(pending, "__name__", ""))
        self.every_ms = parse_duration(options.get("every", "1m"))
        if self.every_ms < 1_000:
            message = f"the source {self.name!r} is scanned every {self.every_ms} ms"
            raise InvalidValue(message, hint="it must be at least 1s")
        self.rate = check_count("rate", options.get("rate", 100), least=1)
        self.last: SourceScan | None = None
        self._pending = pending
        self._under_way: RowsFunction | None = None

    def in_flight(self, fn: Function) -> Function:
        """Declare a function that yields the work in flight, as returned by `hw.in_flight`.

        Raises:
            InvalidValue: the source already has one, or this is not a function.
        """
        if self._under_way is not None:
            message = f"the source {self.name!r} has two functions for work in flight"
            raise InvalidValue(message, hint="yield all of it from one function")
        self._under_way = check_function("what yields work in flight", fn, yields=True)
        return fn

    def pending(self) -> AsyncGenerator[list[Any]]:
        """Yield the jobs that should be pending, in pages of at most 1000."""
        return _pages(self._pending)

    def under_way(self) -> AsyncGenerator[list[Any]]:
        """Yield the work in flight, in pages of at most 1000."""
        return _pages(self._under_way or tuple)


async def _pages(rows: RowsFunction) -> AsyncGenerator[list[Any]]:
    found = rows()
    if isinstance(found, AsyncIterable):
        page: list[Any] = []
        async with AsyncExitStack() as stack:
            if isinstance(found, AsyncGenerator):
                # Release what the generator has open now, and not when it is garbage-collected.
                stack.push_async_callback(found.aclose)
            async for row in found:
                page.append(row)
                if len(page) == MAX_BATCH:
                    yield page
                    page = []
            if page:
                yield page
        return
    if not isinstance(cast("object", found), Iterable):
        message = f"a source returned {found!r:.80}"
        raise InvalidValue(message, hint="yield jobs from it, or return a list of them")
    # In a thread, because a source may read its table with a blocking driver; all of it in the same
    # one, because some drivers serve only the thread that connected.
    loop, context, rest = asyncio.get_running_loop(), copy_context(), iter(found)
    thread = ThreadPoolExecutor(1, thread_name_prefix="headway-source")
    try:
        take = partial(context.run, lambda: list(islice(rest, MAX_BATCH)))
        while page := await loop.run_in_executor(thread, take):
            yield page
    finally:
        if isinstance(rest, Generator):
            thread.submit(rest.close)  # as above
        thread.shutdown(wait=False)
