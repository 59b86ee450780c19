"""The worker: claims jobs, runs their handlers, keeps their leases, settles them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import get_ident
from typing import Any, Unpack
from uuid import uuid4

from headway.contract.claims import BeatReply
from headway.contract.outcomes import Outcome, Released, Verdict
from headway.contract.store import Store
from headway.core.errors import InvalidValue, StoreChanged, StoreError
from headway.core.job import MAX_BATCH
from headway.runtime.chores import Sweep, TimetableChore
from headway.runtime.job import Stop
from headway.runtime.kind import Kind
from headway.runtime.timing import Timing, persist
from headway.runtime.worker.claimer import Claimer, Prefetch, settled
from headway.runtime.worker.endings import Failures
from headway.runtime.worker.handler_slot import HandlerSlot, ReadyQueue
from headway.runtime.worker.lease import Heartbeat, HeartbeatThread, Held, Lease, Run
from headway.runtime.worker.plans import Plans
from headway.runtime.worker.settler import Settler
from headway.runtime.worker.worker_options import (
    SignalUrl,
    WorkerOptions,
    WorkerSettings,
    read_worker_options,
)

PROGRESS_EVERY = 60.0
"""Seconds between two lines of progress."""
STOP_LIMIT = 5.0
"""Seconds that stopped handlers get to end, then the sources, and then the store to answer."""

_log = logging.getLogger("headway.worker")


class WorkerRun:
    """The parts of one run of a worker, and their start and stop."""

    def __init__(
        self, store: Store, kinds: Mapping[str, Kind], worker: str, settings: WorkerSettings
    ) -> None:
        """Join the parts; nothing runs yet.

        Args:
            kinds: by name.
        """
        timing = self._timing = settings.timing
        self._store = store
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._held = Held()
        self._lease = Lease(settings.lease_ms)
        self.settler = Settler(store, worker, self._held, timing)
        self.queue = ReadyQueue(settings.concurrency, self.settler, self._held, timing)
        self.settler.on_batch(settled(self.queue))
        self._context = WorkerContext(self.settler, self._held, settings.signal_url)
        self._plans = Plans(
            kinds,
            settings.middleware,
            store,
            self._context,
            size=settings.concurrency,
            timing=timing,
            unknown=settings.unknown,
        )
        self._failures = Failures(settings.on_failure, timing)
        self._slots = [
            HandlerSlot(self.queue, self._plans, self._context, kinds, self._failures)
            for _ in range(settings.concurrency)
        ]
        self._claimer = Claimer(
            store,
            worker,
            lanes=settings.lanes,
            order=settings.order,
            queue=self.queue,
            held=self._held,
            lease=self._lease,
            prefetch=Prefetch(settings.prefetch),
            timing=timing,
            on_idle=partial(self.stop, now=False) if settings.until_idle else None,
        )
        self._heartbeat = Heartbeat(
            store,
            worker,
            name=settings.name,
            lanes=tuple(name for name, _ in settings.lanes),
            held=self._held,
            lease=self._lease,
            timing=timing,
            on_reply=self._on_beat,
            on_lapse=self._on_lapse,
        )
        self._stopped = asyncio.Event()
        self._hurry = False
        self._crash: BaseException | None = None
        self._cancelled: asyncio.CancelledError | None = None

    async def work(self) -> None:
        """Work until stopped, then wind down.

        Raises:
            StoreError: the store cannot go on; what is held is left to its lease.
            CancelledError: it was cancelled itself; it has wound down in a hurry.
        """
        heartbeat = self._start_heartbeat()
        context = copy_context()
        for slot in self._slots:
            slot.start(context, self._crashed)
        settling = self._spawn(self.settler.run())
        claiming = self._spawn(self._claimer.run())
        giving_back = self._spawn(self._claimer.give_back())
        chores = [self._spawn(chore) for chore in self._chores()]
        try:
            await self._stopped.wait()
        except asyncio.CancelledError as error:
            self._hurry_up(error)
        for one in (giving_back, *chores):
            one.cancel()
        beside = asyncio.gather(giving_back, *chores, return_exceptions=True)
        await self._wind_down(claiming, settling)
        await self._wait(_end_of(beside), STOP_LIMIT)
        await self._leave(heartbeat)
        if self._cancelled is not None:
            raise self._cancelled
        if self._crash is not None:
            raise self._crash

    def stop(self, *, now: bool) -> None:
        """Ask it to stop.

        Args:
            now: do not wait for handlers.
        """
        self._hurry = self._hurry or now
        self._stopped.set()
        self.queue.idle.set()

    def _chores(self) -> list[Coroutine[Any, Any, None]]:
        timing = self._timing
        progress = log_progress(self.queue, self._failures, timing)
        if not self._settings.chores:
            return [progress]
        keep, sweepers = self._settings.keep_trail_ms, self._settings.sweepers
        sweep = Sweep(self._store, timing, keep_trail_ms=keep, sweepers=sweepers)
        chores = [sweep.run(), TimetableChore(self._store, timing).run()]
        return [progress, *chores, *(duty() for duty in self._settings.duties)]

    def _start_heartbeat(self) -> HeartbeatThread | asyncio.Task[None]:
        if self._settings.heartbeat == "task":
            self._context.on_progress = self._heartbeat.poke
            return self._spawn(self._heartbeat.run())
        thread = HeartbeatThread(self._heartbeat.run, self._crashed)
        self._context.on_progress = lambda: thread.call(self._heartbeat.poke)
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

    def _on_beat(self, reply: BeatReply) -> None:
        """A beat was answered; called in the heartbeat's loop."""
        if reply.lost or reply.cancel:
            self._loop.call_soon_threadsafe(
                self._apply_reply, frozenset(reply.lost), frozenset(reply.cancel)
            )

    def _apply_reply(self, lost: frozenset[Run], cancel: frozenset[Run]) -> None:
        for claimed in self.queue.withdraw(lost):
            self._held.runs.pop((claimed.id, claimed.run), None)
        for claimed in self.queue.withdraw(cancel):
            self.settler.put(Released(claimed.id, claimed.run, reason="cancelled"))
        for slot in self._slots:
            job = slot.job
            if job is None:
                continue
            run = (job.id, job.run)
            if run in lost and (self.settler.asks(run) or run not in self._held.runs):
                # A hand-over has ended it, or its verdict is going to say why it is not live.
                continue
            if run in lost and job.stop != "lost":
                _log.warning("job %s: run %d is no longer live", *run)
                slot.interrupt("lost")
            elif run in cancel and job.stop is None:
                slot.interrupt("cancel")

    def _on_lapse(self) -> None:
        """The lease is about to end; called in the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._stop_at_lapse)

    def _stop_at_lapse(self) -> None:
        """Stop what can be stopped; what it writes then count only if the lease still lives."""
        if not self._lease.lapsing(self._timing.monotonic()):
            return  # a claim got through meanwhile, and kept it
        self.queue.hand_back("its worker could not beat")
        self._interrupt_all("stop")

    def _interrupt_all(self, why: Stop) -> None:
        for slot in self._slots:
            if slot.job is not None and slot.job.stop is None:
                slot.interrupt(why)

    async def _wind_down(self, claiming: asyncio.Task[None], settling: asyncio.Task[None]) -> None:
        """Let handlers end within the grace, and hand back the rest."""
        queue, slots = self.queue, self._slots
        queue.hand_back("its worker stops")
        self._claimer.stop()
        await self._end(claiming)
        queue.hand_back("its worker stops")
        grace = 0.0 if self._hurry else self._settings.grace
        await self._while_any(lambda slot: not self._hurry and slot.job is not None, grace)
        self._interrupt_all("stop")
        await self._while_any(lambda slot: slot.job is not None and not slot.in_thread, STOP_LIMIT)
        self._log_lasting()
        # Nothing ends a thread from outside: unless in a hurry, its run is kept until it ends.
        await self._while_any(lambda slot: not self._hurry and slot.in_thread, float("inf"))
        for slot in slots:
            slot.abort()
        await self._end(asyncio.gather(*(slot.task for slot in slots), return_exceptions=True))
        self.settler.close(hurry=self._hurry)
        if settling.cancelled():
            # `asyncio.run` cancels all tasks at its end, and waits for this run.
            settling = self._spawn(self.settler.run())
        await self._end(settling)
        self._plans.close()

    def _log_lasting(self) -> None:
        """Log the handlers that go on although they were asked to stop."""
        lasting = [f"{slot.job.kind} {slot.job.id}" for slot in self._slots if slot.job is not None]
        if lasting:
            _log.warning(
                "%d handlers do not end, and the worker %s: %s",
                len(lasting),
                "goes without them" if self._hurry else "waits for a second stop",
                ", ".join(lasting[:10]),
            )

    async def _while_any(self, holds: Callable[[HandlerSlot], bool], seconds: float) -> None:
        """Wait while something holds of any slot, but not for longer than so many seconds."""
        until = self._timing.monotonic() + seconds
        while any(map(holds, self._slots)):
            left = until - self._timing.monotonic()
            if left <= 0:
                return
            self.queue.idle.clear()
            await self._wait(self.queue.idle, min(left, STOP_LIMIT))

    async def _wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event, to the end also if the run is cancelled, which only is a hurry.

        A run that was left at once would leave a heartbeat behind, which keeps its jobs forever.
        """
        until = self._timing.monotonic() + seconds
        while not event.is_set():
            left = until - self._timing.monotonic()
            if left <= 0:
                return False
            try:
                await self._timing.wait(event, left)
            except asyncio.CancelledError as error:
                self._hurry_up(error)
        return True

    def _hurry_up(self, cancelled: asyncio.CancelledError) -> None:
        self._cancelled = cancelled
        self.stop(now=True)

    async def _end(self, work: asyncio.Future[Any]) -> None:
        """Wait for work that was asked to end.

        It is given up in a hurry, or when the lease has ended: nothing it writes could count. What
        swallows that is left behind.
        """
        ended = _end_of(work)
        given_up = False
        while not await self._wait(ended, STOP_LIMIT) and not given_up:
            if self._hurry or self._timing.monotonic() > self._lease.ends:
                work.cancel()
                given_up = True

    async def _leave(self, heartbeat: HeartbeatThread | asyncio.Task[None]) -> None:
        """Stop the heartbeat; its last beat ends the lease, unless a run is still held."""
        if isinstance(heartbeat, HeartbeatThread):
            heartbeat.stop()
            await self._wait(heartbeat.ended, STOP_LIMIT)
        else:
            heartbeat.cancel()
            await self._end(heartbeat)
        if self._held.runs or self._crash is not None:
            return
        with suppress(StoreError, TimeoutError):
            async with self._timing.limit(STOP_LIMIT):
                await self._heartbeat.leave()


def _end_of(work: asyncio.Future[Any]) -> asyncio.Event:
    ended = asyncio.Event()
    work.add_done_callback(lambda _: ended.set())
    return ended


class WorkerContext:
    """The `HandlerContext` of a worker: its settler and its heartbeat.

    Attributes:
        on_progress: called when there is progress to carry, from any thread.
    """

    def __init__(self, settler: Settler, held: Held, signal_url: SignalUrl) -> None:
        self.on_progress: Callable[[], None] = lambda: None
        self._signal_url = signal_url
        self._settler = settler
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    def signal_url(self, ref: str) -> str | None:
        """Where the outside world signals a run; None while no server is configured."""
        return self._signal_url(ref)

    async def write(self, outcome: Outcome) -> Verdict:
        """Write an outcome of a live run, and say what the store answered."""
        return await self._settler.write(outcome)

    def write_from_thread(self, outcome: Outcome) -> Verdict:
        """The same, for a handler that is not in the event loop.

        Raises:
            InvalidValue: it is, and would wait for itself.
        """
        if get_ident() == self._thread:
            message = "job.sync blocks the worker's event loop"
            raise InvalidValue(message, hint="in an async handler await job.hand_over(...) itself")
        return asyncio.run_coroutine_threadsafe(self._settler.write(outcome), self._loop).result()

    def note_progress(self, job: str, run: int, data: bytes) -> None:
        """Keep the newest progress of a run for the next beat, which is soon."""
        self._held.note_progress((job, run), data)
        self.on_progress()


async def log_progress(queue: ReadyQueue, failures: Failures, timing: Timing) -> None:
    """Log a line a minute of what a worker did and has to do, until it is cancelled.

    `done` and `failed` are runs of that minute, `running` handlers, and `waiting` the jobs that
    it has claimed and no handler has started. An idle worker logs nothing.
    """
    ended = failed = 0
    while True:
        await timing.pause(PROGRESS_EVERY)
        newly_failed = failures.count - failed
        said = {
            "done": max(0, queue.done - ended - newly_failed),
            "failed": newly_failed,
            "running": queue.busy,
            "waiting": len(queue.plain) + len(queue.gated),
        }
        ended, failed = queue.done, failures.count
        if any(said.values()):
            _log.info(
                "worker progress done=%(done)d failed=%(failed)d running=%(running)d "
                "waiting=%(waiting)d",
                said,
            )


class Worker:
    """Runs jobs from `run` until `stop`.

    Attributes:
        id: random for each run; empty before the first.
        settings: the settings of the worker.
    """

    def __init__(
        self, store: Store, kinds: Mapping[str, Kind], **options: Unpack[WorkerOptions]
    ) -> None:
        """Make a worker.

        Args:
            kinds: by name; the option `unknown` decides about jobs of other kinds.

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
        """Number of handlers running now."""
        return self._current.queue.busy if self._current else 0

    @property
    def ended(self) -> int:
        """Number of runs settled so far in the current `run`."""
        return self._current.settler.settled if self._current else 0

    async def run(self) -> None:
        """Run until stopped or idle; then let handlers finish and return the other jobs.

        Raises:
            StoreError: the store cannot continue; runs in progress are left to their leases.
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
        if self.settings.until_idle and self.settings.chores:
            # Its other chores run beside it, and may come too late for what is due now.
            await persist(self.settings.timing, "the chores of now", self._chores_of_now)

    async def _chores_of_now(self) -> None:
        await TimetableChore(self._store, self.settings.timing).lay()
        await self._store.sweep(MAX_BATCH, keep_trail_ms=self.settings.keep_trail_ms)

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
        """Request a stop and return at once; callable from any thread, also before `run`.

        Args:
            now: do not wait for handlers; those that can be cancelled are, and their jobs are
                returned.
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
