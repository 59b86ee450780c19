"""Sourcing: the store is brought in line with the sources, before the first claim and ever after.

Work in flight is restored before anything is claimed, so that a line that is taken is known to be
taken, and nobody is called who is on the phone. What is pending follows, spread over a window that
grows with what is missing, so that a store that was lost does not come back as one great burst.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from headway.contract.enqueue import InFlight
from headway.contract.mending import Mendable
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.draw import draw
from headway.core.errors import HeadwayError, InvalidValue
from headway.core.job import NewJob
from headway.runtime.persist import persist
from headway.runtime.sources.source import Look, Source
from headway.runtime.sources.under_way import check_key
from headway.runtime.timing import Timing

LEASE_MS = 60_000
"""How long whoever rebuilds a store keeps the others from it, from its last page on."""
LOOK_MS = 15_000
"""How long whoever looks at a source keeps the others from it, from its last page on: two who
look at once make nothing twice, and of one that died they take over soon."""
AGAIN = 2.0
"""Seconds after which work in flight that could not be read or restored is read again."""

_log = logging.getLogger("headway.sources")


class Sourcing:
    """The sources of an app, and its store.

    Args:
        store: to be brought in line.
        sources: of the app.
        declare: tells the store anew what gates, lanes and entries there are.
        timing: for the pauses.
        name: stands on the trail.
    """

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
        self._mending = asyncio.Lock()

    async def begin(self) -> None:
        """Restores what is in flight. Ends when all of it is; nothing may be claimed before."""
        await self._until_done(lambda: self._restore_all(anew=False))

    async def rebuild(self) -> None:
        """Makes a store that was lost, or is an older state of itself, fit to be claimed from.

        What is in flight is restored, and then a new epoch begun, by one of all who found it so.

        Raises:
            StoreError: the store cannot be mended by anybody.
        """
        store = self._store
        if not isinstance(store, Mendable):
            return
        async with self._mending:
            await self._until_done(lambda: self._rebuild(cast("Mendable", store)))

    async def run(self, source: Source) -> None:
        """Looks at a source again and again, until it is cancelled; one of all workers does.

        A store that was lost is found here too: a worker whose lines are all taken claims rarely.
        """
        role = f"source:{source.name}"
        while True:
            rest_ms = source.every_ms
            try:
                await self.rebuild()
                if await self._leads(role, LOOK_MS):
                    await self.look(source)
                    # Whoever comes next, even after a restart, looks when it is time again.
                    await self._leads(role, source.every_ms)
                else:
                    rest_ms //= 4
            except Exception as error:  # noqa: BLE001  (a user's source may raise anything)
                source.last = replace(source.last or Look(), error=str(error))
                _log.error(
                    "source %s: %s: %s", source.name, type(error).__name__, error, exc_info=error
                )
            await self._timing.pause(rest_ms / 1000)

    async def look(self, source: Source) -> Look:
        """Makes the jobs that a source names and the store has not.

        Returns:
            What it came to.

        Raises:
            InvalidValue: the source gave something that is no job with a key.
            CallerError: a job was refused; those of the pages before it are made.
            StoreError: the store cannot do it now.
        """
        rows = missing = window_ms = 0
        async for page in source.pending():
            jobs = [_checked(job) for job in page]
            now = (await self._store.read(StatsQuery())).now
            window_ms = (missing + len(jobs)) * 1000 // source.rate
            spread = [_spread(job, now, missing * 1000 // source.rate, window_ms) for job in jobs]
            replies = await self._store.enqueue(spread)
            rows += len(jobs)
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
                    "nothing is claimed before what is in flight is known: %s: %s",
                    type(error).__name__,
                    error,
                    exc_info=error,
                )
            await self._timing.pause(AGAIN)

    async def _rebuild(self, store: Mendable) -> None:
        while await store.suspicion() is not None:
            if not await self._leads("sources"):
                await self._timing.pause(AGAIN)
                continue
            _log.warning("the store was lost, or is an older one: it is rebuilt from the sources")
            await self._declare()
            await self._restore_all(anew=True)
            await store.new_epoch(self._name, "rebuilt from the sources")

    async def _leads(self, role: str, lease_ms: int = LEASE_MS) -> bool:
        return await self._store.lead(role, self._holder, lease_ms) is not None

    async def _restore_all(self, *, anew: bool) -> None:
        for source in self._sources:
            async for page in source.under_way():
                await self._restore([_checked_in_flight(one) for one in page], anew=anew)
                if anew:
                    await self._leads("sources")

    async def _restore(self, page: list[InFlight], *, anew: bool) -> None:
        # An older state of the store may still want to dispatch what is in flight by now.
        replies = await self._store.restore([replace(one, newer=anew) for one in page])
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
    return replace(job, due_at=due_at)
