"""The worker: claims jobs, runs their handlers, extends their leases, and settles them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from threading import get_ident
from typing import Any, Unpack
from uuid import uuid4

from headway.contract.claims import BeatReply
from headway.contract.outcomes import Outcome, Released, Verdict
from headway.contract.store import Store
from headway.contract.views import LanesQuery
from headway.core.errors import (
    AccessError,
    InvalidState,
    InvalidValue,
    StoreChanged,
    StoreError,
    StoreMisconfigured,
)
from headway.core.job import MAX_BATCH
from headway.runtime.chores import Sweep, TimetableChore
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.timing import Timing, persist
from headway.runtime.worker.claimer import Claimer, PrefetchSize, wake_after_settling
from headway.runtime.worker.handler_slot import HandlerSlot, ReadyQueue
from headway.runtime.worker.lease import Heartbeat, HeartbeatThread, Held, Lease, Run
from headway.runtime.worker.loop_watch import LoopWatch
from headway.runtime.worker.outcomes import Failures
from headway.runtime.worker.plans import Plans
from headway.runtime.worker.settler import Settler
from headway.runtime.worker.worker_options import (
    LEASE_MS,
    LONGEST_LEASE_MS,
    SHORTEST_LEASE_MS,
    SignalUrl,
    WorkerOptions,
    WorkerSettings,
    read_worker_options,
)

PROGRESS_EVERY = 60.0
"""Seconds between two progress lines in the log."""
STOP_LIMIT = 5.0
"""Seconds that each step of a stop may take: handlers, then chores and sources, then the store."""

_log = logging.getLogger("headway.worker")


class WorkerRun:
    """One run of a worker: assembles its parts, starts them and stops them."""

    def __init__(
        self, store: Store, kinds: Mapping[str, Kind], worker: str, settings: WorkerSettings
    ) -> None:
        """Assemble the parts; nothing runs yet."""
        timing = self._timing = settings.timing
        self._store = store
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._held = Held()
        self._lease = Lease(settings.lease_ms)
        self.settler = Settler(store, worker, self._held, timing)
        self.queue = ReadyQueue(settings.concurrency, self.settler, self._held, self._lease, timing)
        self.settler.on_batch(wake_after_settling(self.queue))
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
            prefetch=PrefetchSize(settings.prefetch),
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
        self._loop_watch = LoopWatch(timing, self._job_of)
        self._stopped = asyncio.Event()
        self._hurry = False
        self._crash: BaseException | None = None
        self._cancelled: asyncio.CancelledError | None = None

    async def work(self) -> None:
        """Work until stopped, then wind down.

        Raises:
            StoreError: the store cannot continue; runs in progress are left to their leases.
            CancelledError: the call was cancelled; the worker has wound down without waiting for
                handlers.
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
            self._stop_now(error)
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
        """Request a stop.

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
        """Keep the error of a failed part for `work` to raise, and stop at once."""
        if self._crash is None:
            self._crash = error
            _log.error("worker crashed: %s: %s", type(error).__name__, error, exc_info=error)
        self.stop(now=True)

    def _on_beat(self, reply: BeatReply, extend: Callable[[], None]) -> None:
        """Apply the reply to a beat; called in the heartbeat's loop."""
        self._loop_watch.check()
        late = self._lease.lapsing(self._timing.monotonic())
        if not late:
            extend()
        if late or reply.lost or reply.cancel:
            # After a late reply, jobs may start again only when the lost ones are withdrawn.
            self._loop.call_soon_threadsafe(
                self._apply_reply, frozenset(reply.lost), frozenset(reply.cancel), extend
            )

    def _job_of(self, task: object) -> Job | None:
        # Slots without a job may not have started yet: the first beats come before.
        busy = (slot for slot in self._slots if slot.job is not None)
        return next((slot.job for slot in busy if slot.task is task), None)

    def _apply_reply(
        self, lost: frozenset[Run], cancel: frozenset[Run], extend: Callable[[], None]
    ) -> None:
        for claimed in self.queue.withdraw(lost):
            self._held.runs.pop((claimed.id, claimed.run), None)
        for claimed in self.queue.withdraw(cancel):
            self.settler.put(Released(claimed.id, claimed.run, reason="cancelled"))
        extend()
        self.queue.wake()
        for slot in self._slots:
            job = slot.job
            if job is None:
                continue
            run = (job.id, job.run)
            if run in lost and (self.settler.asks(run) or run not in self._held.runs):
                # A hand-over has ended the run, or its verdict will report why the run is not live.
                continue
            if run in lost and job.stop != "lost":
                _log.warning("job %s: run %d is no longer live", *run)
                slot.interrupt("lost")
            elif run in cancel and job.stop is None:
                slot.interrupt("cancel")

    def _on_lapse(self) -> None:
        """Stop the handlers before the lease ends; called in the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._stop_at_lapse)

    def _stop_at_lapse(self) -> None:
        """Stop handlers and hand back jobs, while the lease still lets their outcomes count."""
        if not self._lease.lapsing(self._timing.monotonic()):
            return  # a claim has extended it meanwhile
        self.queue.hand_back("its worker could not beat")
        self._stop_handlers()

    def _stop_handlers(self) -> None:
        for slot in self._slots:
            if slot.job is not None and slot.job.stop is None:
                slot.interrupt("stop")

    async def _wind_down(self, claiming: asyncio.Task[None], settling: asyncio.Task[None]) -> None:
        """Let handlers finish within the grace period, stop the others, and settle everything."""
        queue, slots = self.queue, self._slots
        queue.hand_back("its worker stops")
        self._claimer.stop()
        await self._end(claiming)
        queue.hand_back("its worker stops")
        grace = self._settings.grace
        await self._while_any(lambda slot: not self._hurry and slot.job is not None, grace)
        self._stop_handlers()
        await self._while_any(lambda slot: slot.job is not None and not slot.in_thread, STOP_LIMIT)
        self._log_lasting()
        # A thread cannot be stopped from outside: unless in a hurry, wait for its handler.
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
        """Log the handlers that keep running although they were asked to stop."""
        lasting = [slot for slot in self._slots if slot.job is not None]
        if not lasting:
            return
        then = "waits for them or a second stop"
        if self._hurry:
            then = "exits without them"
            if any(slot.in_thread for slot in lasting):
                # Python joins its threads before it exits.
                then = "stops without them, but its process ends after those in threads"
        _log.warning(
            "handlers still running after stop: %d; the worker %s: %s",
            len(lasting),
            then,
            ", ".join(f"{slot.job.kind} {slot.job.id}" for slot in lasting[:10] if slot.job),
        )

    async def _while_any(self, holds: Callable[[HandlerSlot], bool], seconds: float) -> None:
        """Wait while the condition holds for any slot, at most for this long."""
        until = self._timing.monotonic() + seconds
        while any(map(holds, self._slots)):
            left = until - self._timing.monotonic()
            if left <= 0:
                return
            self.queue.idle.clear()
            await self._wait(self.queue.idle, min(left, STOP_LIMIT))

    async def _wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event, and return whether it is set in time.

        A cancellation does not end the wait, but makes the stop a hurried one: returning at once
        would leave a heartbeat running that keeps the worker's jobs forever.
        """
        until = self._timing.monotonic() + seconds
        while not event.is_set():
            left = until - self._timing.monotonic()
            if left <= 0:
                return False
            try:
                await self._timing.wait(event, left)
            except asyncio.CancelledError as error:
                self._stop_now(error)
        return True

    def _stop_now(self, cancelled: asyncio.CancelledError) -> None:
        self._cancelled = cancelled
        self.stop(now=True)

    async def _end(self, work: asyncio.Future[Any]) -> None:
        """Wait for work that was asked to end.

        In a hurry, or after the lease has ended (when nothing it writes would count), the work is
        cancelled. Work that ignores the cancellation is abandoned.
        """
        ended = _end_of(work)
        given_up = False
        while not await self._wait(ended, STOP_LIMIT) and not given_up:
            if self._hurry or self._timing.monotonic() > self._lease.ends:
                work.cancel()
                given_up = True

    async def _leave(self, heartbeat: HeartbeatThread | asyncio.Task[None]) -> None:
        """Stop the heartbeat, and end the lease with a last beat, unless a run is still held."""
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
    """The `HandlerContext` of a worker: writes through its settler and its heartbeat.

    Attributes:
        on_progress: called from any thread when there is progress to send.
    """

    def __init__(self, settler: Settler, held: Held, signal_url: SignalUrl) -> None:
        self.on_progress: Callable[[], None] = lambda: None
        self._signal_url = signal_url
        self._settler = settler
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    def signal_url(self, ref: str) -> str | None:
        """Return the URL that receives signals for a run; None if no server is configured."""
        return self._signal_url(ref)

    async def write(self, outcome: Outcome) -> Verdict:
        """Write an outcome of a live run, and return the store's verdict."""
        return await self._settler.write(outcome)

    def write_from_thread(self, outcome: Outcome) -> Verdict:
        """Write an outcome for a handler that runs in another thread.

        Raises:
            InvalidValue: it was called in the worker's event loop, which would deadlock.
        """
        if get_ident() == self._thread:
            message = "job.sync blocks the worker's event loop"
            raise InvalidValue(message, hint="in an async handler, use `await job.hand_over(...)`")
        return asyncio.run_coroutine_threadsafe(self._settler.write(outcome), self._loop).result()

    def note_progress(self, job: str, run: int, data: bytes) -> None:
        """Keep the latest progress of a run, and beat soon to send it."""
        self._held.note_progress((job, run), data)
        self.on_progress()


async def log_progress(queue: ReadyQueue, failures: Failures, timing: Timing) -> None:
    """Log a progress line every minute, until cancelled.

    `done` and `failed` count the runs of that minute, `running` the handlers, and `waiting` the
    claimed jobs that no handler has started. An idle worker logs nothing.
    """
    ended = failed = 0
    while True:
        await timing.pause(PROGRESS_EVERY)
        newly_failed = failures.count - failed
        counts = {
            "done": max(0, queue.done - ended - newly_failed),
            "failed": newly_failed,
            "running": queue.busy,
            "waiting": len(queue.plain) + len(queue.gated),
        }
        ended, failed = queue.done, failures.count
        if any(counts.values()):
            _log.info(
                "worker progress done=%(done)d failed=%(failed)d running=%(running)d "
                "waiting=%(waiting)d",
                counts,
            )


class Worker:
    """Runs jobs from `run` until `stop`.

    Attributes:
        id: random id of the current run; empty before the first.
        settings: the settings of the worker.
        follows_lanes: whether the lease that its lanes have in the store when it starts, which an
            operator may have set, replaces that of its settings.
    """

    def __init__(
        self, store: Store, kinds: Mapping[str, Kind], **options: Unpack[WorkerOptions]
    ) -> None:
        """Create a worker.

        Args:
            kinds: by name; the option `unknown` decides about jobs of other kinds.

        Raises:
            InvalidValue: an option is not valid, or a stage has no handler.
        """
        self.id = ""
        self.follows_lanes = False
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
            StoreError: the store cannot continue; runs in progress are left to their leases. Until
                the first claim also `StoreMisconfigured`, such as for a missing permission.
            InvalidState: it already runs.
        """
        if self._loop is not None:
            message = "the worker already runs"
            raise InvalidState(message, hint="create another one: `stop` reaches only one run")
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
        """Do what must precede the first claim, retrying while the store is unreachable.

        Raises:
            StoreMisconfigured: the store's URL or settings are wrong.
        """
        begin = partial(
            persist,
            self.settings.timing,
            until=lambda error: isinstance(error, StoreMisconfigured),
        )
        before = self.settings.before
        if before is not None:
            await begin("before the first claim", before)
        if self.follows_lanes:
            await begin("before the first claim", self._use_lanes_lease)
        if self.settings.until_idle and self.settings.chores:
            # The other chores run concurrently, and may be too late for what is due now.
            await begin("first chores", self._chores_of_now)

    async def _use_lanes_lease(self) -> None:
        # The token of a worker over HTTP may not be allowed to list lanes.
        with suppress(AccessError):
            names = tuple(name for name, _ in self.settings.lanes)
            lanes = await self._store.read(LanesQuery(names=names))
            leases = [one.spec.lease_ms for one in lanes if one.spec.lease_ms is not None]
            shortest = min(leases, default=LEASE_MS)
            lease_ms = min(max(shortest, SHORTEST_LEASE_MS), LONGEST_LEASE_MS)
            self.settings = replace(self.settings, lease_ms=lease_ms)

    async def _chores_of_now(self) -> None:
        await TimetableChore(self._store, self.settings.timing).create_fires()
        await self._store.sweep(MAX_BATCH, keep_trail_ms=self.settings.keep_trail_ms)

    async def _unless_stopped(self, work: Callable[[], Awaitable[None]] | None) -> None:
        """Await some work, but cancel it when the worker is stopped."""
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
            with suppress(RuntimeError):  # the loop has ended, and the run with it
                loop.call_soon_threadsafe(self._stop, now)

    def _stop(self, now: bool) -> None:
        self._stopped.set()
        if self._current is not None:
            self._current.stop(now=now)
