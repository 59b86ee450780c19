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
from headway.runtime.worker.worker_options import WorkerOptions, read_worker_options
from headway.runtime.worker.worker_run import WorkerRun


class Worker:
    """Runs jobs from `run` until `stop`.

    Attributes:
        id: random for each run; empty before the first.
        settings: its settings.
    """

    def __init__(
        self, store: Store, kinds: Mapping[str, Kind], **options: Unpack[WorkerOptions]
    ) -> None:
        """Make a worker.

        Args:
            store: where its jobs are.
            kinds: by name; the option `unknown` decides about jobs of other kinds.
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
        self._current: WorkerRun | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_now: bool | None = None
        self._stopped = asyncio.Event()

    @property
    def running(self) -> int:
        """Handlers that run now."""
        return self._current.queue.busy if self._current else 0

    @property
    def ended(self) -> int:
        """Runs that were settled so far, in the run at hand."""
        return self._current.settler.settled if self._current else 0

    async def run(self) -> None:
        """Work until stopped; then let handlers end, and hand back the rest.

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
            self._stop_now = self._loop = None

    async def _work(self) -> bool:
        """Run once, and return whether the store must be rebuilt before another run.

        Raises:
            StoreChanged: no source can rebuild the store.
        """
        self.id = uuid4().hex
        self._current = WorkerRun(self._store, self._kinds, self.id, self.settings)
        if self._stop_now is not None:
            self._current.stop(now=self._stop_now)
        try:
            await self._current.work()
        except StoreChanged:
            if self.settings.rebuild is None:
                raise
            return self._stop_now is None
        return False

    async def _begin(self) -> None:
        """What comes before the first claim; tried again while the store is away."""
        before = self.settings.before
        if before is not None:
            await persist(self.settings.timing, "before the first claim", before)

    async def _unless_stopped(self, work: Callable[[], Awaitable[None]] | None) -> None:
        """Do what comes before a run; cancelled when the worker is stopped."""
        if work is None or self._stop_now is not None:
            return
        doing = asyncio.ensure_future(work())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not doing.done():
                doing.cancel()
            await asyncio.gather(doing, stopped, return_exceptions=True)
        if not doing.cancelled():
            doing.result()

    def stop(self, *, now: bool = False) -> None:
        """Ask it to stop, and return at once; callable from any thread, also before `run`.

        Args:
            now: do not wait for handlers; those that can be are cancelled and handed back.
        """
        self._stop_now = now or bool(self._stop_now)
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # its loop has ended, and the run with it
                loop.call_soon_threadsafe(self._stop, now)

    def _stop(self, now: bool) -> None:
        self._stopped.set()
        if self._current is not None:
            self._current.stop(now=now)
