"""A shift: one run of a worker, from its first claim to its last beat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from headway.contract.claims import BeatReply
from headway.contract.outcomes import Released
from headway.contract.store import Store
from headway.core.errors import StoreError
from headway.runtime.chores.sweep import Sweep
from headway.runtime.chores.timetable import TimetableChore
from headway.runtime.job import Stop
from headway.runtime.kind import Kind
from headway.runtime.worker.claimer import Claimer, settled
from headway.runtime.worker.floor import Floor
from headway.runtime.worker.heart_thread import HeartThread
from headway.runtime.worker.heartbeat import Heartbeat
from headway.runtime.worker.held import Held, Run
from headway.runtime.worker.lease import Lease
from headway.runtime.worker.plans import Plans
from headway.runtime.worker.prefetch import Prefetch
from headway.runtime.worker.reports import Failures, log_progress
from headway.runtime.worker.settler import Settler
from headway.runtime.worker.slot import Slot
from headway.runtime.worker.worker_desk import WorkerDesk
from headway.runtime.worker.worker_options import WorkerSettings

LAST_WORDS = 5.0
"""Seconds that stopped handlers get to end, and then the store to hear of it."""

_log = logging.getLogger("headway.worker")


class Shift:
    """Everything that one run of a worker is made of.

    Attributes:
        floor: the jobs that are ready, and the handlers.
        settler: tells the store how they end.
    """

    def __init__(
        self, store: Store, kinds: Mapping[str, Kind], worker: str, settings: WorkerSettings
    ) -> None:
        """Joins the parts; nothing runs yet.

        Args:
            store: where the jobs are.
            kinds: by name.
            worker: the random id of this run.
            settings: what the worker was told.
        """
        timing = self._timing = settings.timing
        self._store = store
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._held = Held()
        self._lease = Lease(settings.lease_ms)
        self.settler = Settler(store, worker, self._held, timing)
        self.floor = Floor(settings.concurrency, self.settler, self._held, timing)
        self.settler.on_batch(settled(self.floor))
        self._desk = WorkerDesk(self.settler, self._held, settings.signal_url)
        self._plans = Plans(
            kinds,
            settings.middleware,
            store,
            self._desk,
            size=settings.concurrency,
            timing=timing,
            unknown=settings.unknown,
        )
        self._failures = Failures(settings.on_failure, timing)
        self._slots = [
            Slot(self.floor, self._plans, self._desk, kinds, self._failures)
            for _ in range(settings.concurrency)
        ]
        self._claimer = Claimer(
            store,
            worker,
            lanes=settings.lanes,
            order=settings.order,
            floor=self.floor,
            held=self._held,
            lease=self._lease,
            prefetch=Prefetch(settings.prefetch),
            timing=timing,
        )
        self._heart = Heartbeat(
            store,
            worker,
            name=settings.name,
            lanes=tuple(name for name, _ in settings.lanes),
            held=self._held,
            lease=self._lease,
            timing=timing,
            on_reply=self._heard,
            on_lapse=self._lapsed,
        )
        self._stopped = asyncio.Event()
        self._hurried = False
        self._crash: BaseException | None = None

    async def work(self) -> None:
        """Works until it is told to stop, then winds down.

        Raises:
            StoreError: the store cannot go on; what is held is left to its lease.
            CancelledError: it was cancelled itself; it has wound down in a hurry.
        """
        heart = self._start_heart()
        context = copy_context()
        for slot in self._slots:
            slot.start(context, self._crashed)
        settling = self._spawn(self.settler.run())
        claiming = self._spawn(self._claimer.run())
        giving_back = self._spawn(self._claimer.give_back())
        chores = [self._spawn(chore) for chore in self._chores()]
        try:
            await self._stopped.wait()
        except asyncio.CancelledError:
            self._hurried = True
            raise
        finally:
            for one in (giving_back, *chores):
                one.cancel()
            await self._wind_down(claiming, settling)
            await self._take_leave(heart)
        if self._crash is not None:
            raise self._crash

    def stop(self, *, now: bool) -> None:
        """Tells it to stop.

        Args:
            now: do not wait for handlers.
        """
        self._hurried = self._hurried or now
        self._stopped.set()
        self.floor.rested.set()

    def _chores(self) -> list[Coroutine[Any, Any, None]]:
        timing = self._timing
        progress = log_progress(self.floor, self._failures, timing)
        if not self._settings.chores:
            return [progress]
        sweep = Sweep(self._store, timing, keep_trail_ms=self._settings.keep_trail_ms)
        chores = [sweep.run(), TimetableChore(self._store, timing).run()]
        return [progress, *chores, *(duty() for duty in self._settings.duties)]

    def _start_heart(self) -> HeartThread | asyncio.Task[None]:
        if self._settings.heartbeat == "task":
            self._desk.on_progress = self._heart.poke
            return self._spawn(self._heart.run())
        thread = HeartThread(self._heart.run, self._crashed)
        self._desk.on_progress = lambda: thread.call(self._heart.poke)
        thread.start()
        return thread

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)

    def _crashed(self, error: BaseException) -> None:
        """A part failed: nothing more may be claimed, and there is no use in waiting."""
        if self._crash is None:
            self._crash = error
            _log.error("the worker stops: %s: %s", type(error).__name__, error, exc_info=error)
        self.stop(now=True)

    def _heard(self, reply: BeatReply) -> None:
        """A beat was answered; called where the heart beats."""
        if reply.lost or reply.cancel:
            self._loop.call_soon_threadsafe(
                self._obey, frozenset(reply.lost), frozenset(reply.cancel)
            )

    def _obey(self, lost: frozenset[Run], cancel: frozenset[Run]) -> None:
        for claimed in self.floor.withdraw(lost):
            self._held.runs.pop((claimed.id, claimed.run), None)
        for claimed in self.floor.withdraw(cancel):
            self.settler.put(Released(claimed.id, claimed.run, reason="cancelled"))
        for slot in self._slots:
            job = slot.job
            if job is None:
                continue
            run = (job.id, job.run)
            if run in lost and job.stop != "lost":
                _log.warning("job %s: run %d is not live any more", *run)
                slot.interrupt("lost")
            elif run in cancel and job.stop is None:
                slot.interrupt("cancel")

    def _lapsed(self) -> None:
        """The lease is about to end; called where the heart beats."""
        self._loop.call_soon_threadsafe(self._let_go)

    def _let_go(self) -> None:
        """Stops what can be stopped; what it writes then counts only if the lease still lives."""
        if not self._lease.lapsing(self._timing.monotonic()):
            return  # a claim got through meanwhile, and kept it
        self.floor.hand_back("its worker could not beat")
        self._interrupt_all("stop")

    def _interrupt_all(self, why: Stop) -> None:
        for slot in self._slots:
            if slot.job is not None and slot.job.stop is None:
                slot.interrupt(why)

    async def _wind_down(self, claiming: asyncio.Task[None], settling: asyncio.Task[None]) -> None:
        """Lets handlers end within the grace, and hands back the rest."""
        floor, slots = self.floor, self._slots
        floor.hand_back("its worker stops")
        self._claimer.stop()
        await self._end(claiming)
        floor.hand_back("its worker stops")
        grace = 0.0 if self._hurried else self._settings.grace
        await self._while_any(lambda slot: not self._hurried and slot.job is not None, grace)
        self._interrupt_all("stop")
        await self._while_any(lambda slot: slot.job is not None and not slot.in_thread, LAST_WORDS)
        # Nothing ends a thread from outside: unless in a hurry, its run is kept until it ends.
        await self._while_any(lambda slot: not self._hurried and slot.in_thread, float("inf"))
        for slot in slots:
            slot.abort()
        await self._end(asyncio.gather(*(slot.task for slot in slots), return_exceptions=True))
        self.settler.close(hurry=self._hurried)
        await self._end(settling)
        self._plans.close()

    async def _while_any(self, holds: Callable[[Slot], bool], seconds: float) -> None:
        """Waits while something holds of any slot, but not for longer than so many seconds."""
        until = self._timing.monotonic() + seconds
        while any(map(holds, self._slots)):
            left = until - self._timing.monotonic()
            if left <= 0:
                return
            self.floor.rested.clear()
            await self._timing.wait(self.floor.rested, min(left, LAST_WORDS))

    async def _end(self, work: asyncio.Future[Any]) -> None:
        """Waits for work that was told to end.

        It is given up in a hurry, or when the lease has ended: nothing it writes could count.
        """
        ended = asyncio.Event()
        work.add_done_callback(lambda _: ended.set())
        while not await self._timing.wait(ended, LAST_WORDS):
            if self._hurried or self._timing.monotonic() > self._lease.ends:
                work.cancel()

    async def _take_leave(self, heart: HeartThread | asyncio.Task[None]) -> None:
        """Stops the heart; its last beat lets go of the lease, unless something is still held."""
        if isinstance(heart, HeartThread):
            heart.stop()
            await self._timing.wait(heart.ended, LAST_WORDS)
        else:
            heart.cancel()
            await self._end(heart)
        if self._held.runs or self._crash is not None:
            return
        with suppress(StoreError, TimeoutError):
            async with self._timing.limit(LAST_WORDS):
                await self._heart.leave()
