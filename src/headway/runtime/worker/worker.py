"""The worker: claims jobs, runs their handlers, keeps their leases, settles them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Unpack
from uuid import uuid4

from headway.contract.store import Store
from headway.core.errors import StoreChanged
from headway.runtime.kind import Kind
from headway.runtime.persist import persist
from headway.runtime.worker.shift import Shift
from headway.runtime.worker.worker_options import WorkerOptions, read_worker_options


class Worker:
    """Runs jobs from `run` until `stop`.

    Attributes:
        id: random for each run; empty before the first.
        settings: what it was told.
    """

    def __init__(
        self, store: Store, kinds: Mapping[str, Kind], **options: Unpack[WorkerOptions]
    ) -> None:
        """Makes a worker.

        Args:
            store: where its jobs are.
            kinds: by name; what becomes of a job of another kind says the option `unknown`.
            options: see `WorkerOptions`.

        Raises:
            InvalidValue: an option is unusable, or a stage has no handler.
        """
        self.id = ""
        self.settings = read_worker_options(options)
        for kind in kinds.values():
            kind.check_stages()
        self._store = store
        self._kinds = dict(kinds)
        self._shift: Shift | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: bool | None = None
        self._stopped = asyncio.Event()

    @property
    def running(self) -> int:
        """Handlers that run now."""
        return self._shift.floor.busy if self._shift else 0

    @property
    def ended(self) -> int:
        """Runs that were settled so far, in the run at hand."""
        return self._shift.settler.settled if self._shift else 0

    async def run(self) -> None:
        """Works until it is told to stop; then lets handlers end, and hands back the rest.

        Raises:
            StoreError: the store cannot go on; what is held is left to its lease.
        """
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        try:
            await self._unless_stopped(self._begin)
            while await self._work():
                await self._unless_stopped(self.settings.rebuild)
        finally:
            self._told = self._loop = None

    async def _work(self) -> bool:
        """One shift; whether the store must be rebuilt, and then another begins.

        Raises:
            StoreChanged: nobody knows how to rebuild the store.
        """
        self.id = uuid4().hex
        self._shift = Shift(self._store, self._kinds, self.id, self.settings)
        if self._told is not None:
            self._shift.stop(now=self._told)
        try:
            await self._shift.work()
        except StoreChanged:
            if self.settings.rebuild is None:
                raise
            return self._told is None
        return False

    async def _begin(self) -> None:
        """What comes before the first claim; tried again while the store is away."""
        before = self.settings.before
        if before is not None:
            await persist(self.settings.timing, "before the first claim", before)

    async def _unless_stopped(self, work: Callable[[], Awaitable[None]] | None) -> None:
        """Does what comes before a shift; given up when the worker is told to stop."""
        if work is None or self._told is not None:
            return
        doing = asyncio.ensure_future(work())
        told = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((doing, told), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            if not doing.done():
                doing.cancel()
            await asyncio.gather(doing, told, return_exceptions=True)
        if not doing.cancelled():
            doing.result()

    def stop(self, *, now: bool = False) -> None:
        """Tells it to stop; returns at once, and may be called from anywhere, also before `run`.

        Args:
            now: do not wait for handlers; those that can be are cancelled and handed back.
        """
        self._told = now or bool(self._told)
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # its loop has ended, and the run with it
                loop.call_soon_threadsafe(self._stop, now)

    def _stop(self, now: bool) -> None:
        self._stopped.set()
        if self._shift is not None:
            self._shift.stop(now=now)
