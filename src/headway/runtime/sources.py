"""Sourcing: the store is brought in line with the sources, before the first claim and ever after.

Work in flight is restored before anything is claimed, so that a line that is taken is known to be
taken, and no one who is on the phone is called. What is pending follows, spread over a window that
grows with what is missing, so that a store that was lost does not come back as one great burst.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypedDict, TypeVar, cast
from uuid import uuid4

from headway.contract.extensions import Repairable
from headway.contract.store import InFlight, Store
from headway.contract.views import StatsQuery
from headway.core.duration import parse_duration
from headway.core.errors import HeadwayError, InvalidValue
from headway.core.gates.spec import check_count
from headway.core.instant import parse_instant
from headway.core.job import MAX_BATCH, NewJob, check_made
from headway.core.naming import check_name
from headway.core.retry import draw
from headway.runtime.kind_options import refuse_unknown
from headway.runtime.timing import Timing, persist

LEASE_MS = 60_000
"""How long the process that rebuilds a store keeps the others from it, from its last page on."""
LOOK_MS = 15_000
"""How long a process that reads a source locks it, from its last page on: two that read at once
insert nothing twice, and another takes over soon after one has died."""
AGAIN = 2.0
"""Seconds after which work in flight that could not be read or restored is read again."""

_log = logging.getLogger("headway.sources")


class Sourcing:
    """The sources of an app, and its store."""

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
        """Restore what is in flight. Ends when all of it is; nothing may be claimed before."""
        await self._until_done(lambda: self._restore_all(newer=False))

    async def rebuild(self) -> None:
        """Make a store that was lost, or is an older state of itself, fit to be claimed from.

        What is in flight is restored, and then a new epoch begun, by one of all who found it so.

        Raises:
            StoreError: the store cannot be repaired.
        """
        store = self._store
        if not isinstance(store, Repairable):
            return
        async with self._rebuild_lock:
            await self._until_done(lambda: self._rebuild(cast("Repairable", store)))

    async def run(self, source: Source) -> None:
        """Look at a source again and again, until it is cancelled; one of all workers does.

        A store that was lost is found here too: a worker whose lines are all taken claims rarely.
        """
        role = f"source:{source.name}"
        while True:
            rest_ms = source.every_ms
            try:
                await self.rebuild()
                if await self._leads(role, LOOK_MS):
                    await self.look(source)
                    # The next leader, even after a restart, looks when it is due again.
                    await self._leads(role, source.every_ms)
                else:
                    rest_ms //= 4
            except Exception as error:  # noqa: BLE001  (a user's source may raise anything)
                if isinstance(error, HeadwayError) and await self._is_lost():
                    # It was lost between the rebuild and the look: rebuild it, then look again.
                    continue
                source.last = replace(source.last or Look(), error=str(error))
                _log.error(
                    "source %s: %s: %s", source.name, type(error).__name__, error, exc_info=error
                )
            await self._timing.pause(rest_ms / 1000)

    async def look(self, source: Source) -> Look:
        """Make the jobs that a source names and the store has not.

        Raises:
            InvalidValue: the source gave something that is not a job with a key.
            CallerError: a job was refused; those of the pages before it are made.
        """
        rows = missing = window_ms = 0
        async with aclosing(source.pending()) as pages:
            async for page in pages:
                jobs = [_checked(job) for job in page]
                now = (await self._store.read(StatsQuery())).now
                from_ms, rows = missing * 1000 // source.rate, rows + len(jobs)
                window_ms = (missing + len(jobs)) * 1000 // source.rate
                spread = [_spread(job, now, from_ms, window_ms) for job in jobs]
                replies = await self._store.enqueue(spread)
                missing += sum(reply.created for reply in replies)
                await self._leads(f"source:{source.name}", LOOK_MS)
        look = Look(rows=rows, missing=missing, window_ms=missing * 1000 // source.rate)
        source.last = look
        if missing:
            _log.warning(
                "source %s: %d of %d jobs were missing and are made, spread over %g s",
                source.name,
                missing,
                rows,
                look.window_ms / 1000,
            )
        return look

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await persist(self._timing, "sources", work)
            except HeadwayError:
                raise
            except Exception as error:  # noqa: BLE001  (a user's source may raise anything)
                _log.error(
                    "nothing is claimed until the jobs in flight are known: %s: %s",
                    type(error).__name__,
                    error,
                    exc_info=error,
                )
            await self._timing.pause(AGAIN)

    async def _rebuild(self, store: Repairable) -> None:
        while await store.suspicion() is not None:
            if not await self._leads("sources"):
                await self._timing.pause(AGAIN)
                continue
            _log.warning("the store was lost, or is an older one: it is rebuilt from the sources")
            await self._declare()
            await self._restore_all(newer=True)
            await store.new_epoch(self._name, "rebuilt from the sources")

    async def _is_lost(self) -> bool:
        store = self._store
        try:
            return isinstance(store, Repairable) and await store.suspicion() is not None
        except HeadwayError:
            return False

    async def _leads(self, role: str, lease_ms: int = LEASE_MS) -> bool:
        return await self._store.lead(role, self._holder, lease_ms) is not None

    async def _restore_all(self, *, newer: bool) -> None:
        for source in self._sources:
            async with aclosing(source.under_way()) as pages:
                async for page in pages:
                    await self._restore([_checked_in_flight(one) for one in page], newer=newer)
                    if newer:
                        await self._leads("sources")

    async def _restore(self, page: list[InFlight], *, newer: bool) -> None:
        # An older state of the store may still want to dispatch what is in flight by now.
        replies = await self._store.restore([replace(one, newer=newer) for one in page])
        made = sum(reply.created for reply in replies)
        if made:
            _log.warning("%d jobs in flight are restored, with their permits", made)


def _checked(job: Any) -> NewJob:  # noqa: ANN401  (whatever the source gave)
    if not isinstance(job, NewJob):
        message = f"a source gave {job!r:.80}"
        raise InvalidValue(message, hint="it yields what kind.make(...) returns")
    check_key(job)
    return job


def _checked_in_flight(one: Any) -> InFlight:  # noqa: ANN401  (whatever the source gave)
    if not isinstance(one, InFlight):
        message = f"a source of work in flight gave {one!r:.80}"
        raise InvalidValue(message, hint="it yields what hw.in_flight(...) returns")
    check_key(one.job)
    return one


def _spread(job: NewJob, now: int, from_ms: int, to_ms: int) -> NewJob:
    """A job that is due is given a place in the window; one that is not is left as it is."""
    if job.due_at is not None and job.due_at > now:
        return job
    due_at = now + from_ms + int(draw(job.key or job.id) * (to_ms - from_ms))
    return job.changed(due_at=due_at)


def in_flight(
    job: NewJob,
    *,
    known_as: str,
    since: object,
    timeout: object,
    members: Mapping[str, str] | None = None,
) -> InFlight:
    """Says that a job's work is under way: it awaits a signal, and holds its permits.

    Args:
        job: from a kind's `make`, with a key.
        known_as: the key under which its end will be signalled.
        since: when the work began; an aware datetime, or ISO 8601 with an offset.
        timeout: from now; at its end the provider is asked, or the deadline decides.
        members: of each pool that it holds a member of: the pool's name and the member's.

    Raises:
        InvalidValue: the job has no key, or a value is not understood.
    """
    check_made(job)
    check_key(job)
    if not known_as:
        message = f"the work of {job.key!r} has no key to be known by"
        raise InvalidValue(message, hint="pass the key under which its end will be signalled")
    return InFlight(
        job=job,
        signal_key=known_as,
        since_at=parse_instant(since),
        deadline_ms=parse_duration(timeout),
        members=dict(members or {}),
    )


def check_key(job: NewJob) -> None:
    """Accept a job with a key.

    Raises:
        InvalidValue: it has none, so it cannot be found again.
    """
    if job.key is None:
        message = f"a source gave a job of kind {job.kind!r} without a key"
        raise InvalidValue(message, hint="pass make(key=...), so that it is not created twice")


Function = TypeVar("Function", bound=Callable[..., Any])
Rows = Callable[[], AsyncIterable[Any] | Iterable[Any]]


class SourceOptions(TypedDict, total=False):
    """Options of `@app.source`.

    Attributes:
        name: name of the source; defaults to the function's name.
        every: pause between two scans of the whole table; defaults to "1m".
        rate: maximum number of missing jobs per second made due; defaults to 100. The more are
            missing, the longer the window over which they are spread.
    """

    name: str
    every: object
    rate: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What the last look at a source came to.

    Attributes:
        missing: those that the store did not have, and has now.
        window_ms: over how long the missing ones that were due were spread.
        error: why it ended early; empty if it did not.
    """

    rows: int = 0
    missing: int = 0
    window_ms: int = 0
    error: str = ""


class Source:
    """What `@app.source` makes of a function.

    Attributes:
        name: unique in the app.
        every_ms: between two looks.
        rate: missing jobs that are let go in a second.
        last: what the last look came to; None before the first.
    """

    def __init__(self, pending: Rows, options: SourceOptions) -> None:
        """Create a source; it is not read yet.

        Raises:
            InvalidValue: an option is unusable.
        """
        refuse_unknown(options, SourceOptions, "a source has no option")
        self.name = check_name("source", options.get("name") or pending.__name__)
        self.every_ms = parse_duration(options.get("every", "1m"))
        if self.every_ms < 1_000:
            message = f"the source {self.name!r} is looked at every {self.every_ms} ms"
            raise InvalidValue(message, hint="at least 1s")
        self.rate = check_count("rate", options.get("rate", 100), least=1)
        self.last: Look | None = None
        self._pending = pending
        self._under_way: Rows | None = None

    def in_flight(self, fn: Function) -> Function:
        """Declare what is under way: a function that yields what `hw.in_flight` returns.

        Raises:
            InvalidValue: the source has one already.
        """
        if self._under_way is not None:
            message = f"the source {self.name!r} reports what is in flight in two ways"
            raise InvalidValue(message, hint="yield all of it from one function")
        self._under_way = fn
        return fn

    def pending(self) -> AsyncGenerator[list[Any]]:
        """What should be pending, in pages of at most 1000."""
        return _pages(self._pending)

    def under_way(self) -> AsyncGenerator[list[Any]]:
        """What is in flight, in pages of at most 1000."""
        return _pages(self._under_way or tuple)


async def _pages(rows: Rows) -> AsyncGenerator[list[Any]]:
    found = rows()
    if isinstance(found, AsyncIterable):
        page: list[Any] = []
        async with AsyncExitStack() as stack:
            if isinstance(found, AsyncGenerator):
                # What it has open is closed with the look, and not whenever it is collected.
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
        message = f"a source gave {found!r:.80}"
        raise InvalidValue(message, hint="yield from it, or return a list")
    # A table that is read with a blocking driver must not block the loop.
    rest = iter(found)
    while page := await asyncio.to_thread(lambda: list(islice(rest, MAX_BATCH))):
        yield page
