"""A worker's lease on its runs, by the worker's clock, and the heartbeat that extends it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

from headway.contract.claims import BeatReply, BeatRequest, Claimed
from headway.contract.store import Store
from headway.core.instant import format_instant
from headway.runtime.timing import PASSING, Timing

_NEVER = float("-inf")


class Lease:
    """How long a worker's runs stay valid without a heartbeat.

    Attributes:
        ms: duration requested with each claim and beat.
        ends: time until which the runs are certainly valid, in seconds on the worker's clock.
        gaps: number of times that it had ended before it was extended.
    """

    def __init__(self, ms: int) -> None:
        self.ms = ms
        self.ends = _NEVER
        self.gaps = 0

    @property
    def interval(self) -> float:
        """Seconds between two beats."""
        return self.ms / 3000

    @property
    def stop_by(self) -> float:
        """Time at which handlers must be asked to stop, so that they end before the lease does."""
        return self.ends - self.ms / 6000

    def lapsing(self, now: float) -> bool:
        """Return whether handlers must stop now; False before the store has given a lease."""
        return now >= self.stop_by and self.ends != _NEVER

    def extend(self, sent: float, left_ms: int) -> None:
        """Extend the lease after a reply of the store.

        Args:
            sent: when the request was sent, in seconds on the worker's clock.
            left_ms: remaining lease at the store's time in the reply.
        """
        self.gaps += sent >= self.ends != _NEVER
        self.ends = max(self.ends, sent + left_ms / 1000)


_WINDOW = 30.0


class StoreTime:
    """Converts the store's times to lower bounds on the worker's monotonic clock.

    If a request sent at `sent` is answered with the store's time `now`, then `now` was not before
    `sent`. The tightest such bound of the last 30 to 60 seconds is kept, so that one slow request
    does not make a job look older than it is.
    """

    def __init__(self) -> None:
        self._since = float("-inf")
        self._newer = float("-inf")
        self._older = float("-inf")

    def observe(self, sent: float, now: int) -> None:
        """Record a request and its reply.

        Args:
            sent: when the request was sent, in seconds on the worker's clock.
            now: the store's time in the reply, in ms.
        """
        if sent - self._since > _WINDOW:
            self._since, self._older, self._newer = sent, self._newer, float("-inf")
        self._newer = max(self._newer, sent - now / 1000)

    def earliest(self, at: int, received: float) -> float:
        """Return the earliest that a store's time can have been, in seconds on the worker's clock.

        Args:
            at: the store's time, in ms.
            received: when it had certainly passed, in seconds on the worker's clock.
        """
        return min(at / 1000 + max(self._newer, self._older), received)


Run = tuple[str, int]
"""A job's id and the number of its run."""


class Held:
    """The runs that a worker holds, and their latest progress.

    Attributes:
        runs: the runs, as claimed.
        request: number of the last claim whose reply was received.
    """

    def __init__(self) -> None:
        self.runs: dict[Run, Claimed] = {}
        self.request = 0
        self._progress: dict[Run, bytes] = {}
        self._lock = Lock()

    def take(self, request: int, jobs: Iterable[Claimed]) -> None:
        """Add the runs of a claim."""
        runs = self.runs
        for claimed in jobs:
            runs[claimed.id, claimed.run] = claimed
        # Last, because a beat in between must name the previous claim.
        self.request = request

    def listed(self) -> tuple[int, tuple[Run, ...]]:
        """Return the number of the last claim, and the runs held.

        The runs include all that this claim and earlier ones returned; callable from any thread.
        """
        request = self.request
        # The copy is atomic, though another thread may be writing.
        return request, tuple(self.runs.copy())

    def note_progress(self, run: Run, data: bytes) -> None:
        """Keep the latest progress of a run for the next beat."""
        with self._lock:
            self._progress[run] = data

    def take_progress(self) -> tuple[tuple[str, int, bytes], ...]:
        """Return and clear the progress that no beat has sent yet, as job, run and JSON."""
        with self._lock:
            taken, self._progress = self._progress, {}
        return tuple((job, run, data) for (job, run), data in taken.items())

    def put_back(self, progress: Iterable[tuple[str, int, bytes]]) -> None:
        """Restore progress whose beat failed, except where there is newer."""
        with self._lock:
            for job, run, data in progress:
                self._progress.setdefault((job, run), data)


SHORTEST_GAP = 0.25
"""Minimum seconds between two beats if the later one is sent early, because of progress."""
MUST_ADVANCE_AFTER = 1.0
"""Seconds between two beats after which the store's time must have advanced."""

_log = logging.getLogger("headway.worker")


class Heartbeat:
    """Sends three beats per lease, and passes on the store's replies."""

    def __init__(  # noqa: PLR0913  (the parts that it joins)
        self,
        store: Store,
        worker: str,
        *,
        name: str,
        lanes: tuple[str, ...],
        held: Held,
        lease: Lease,
        timing: Timing,
        on_reply: Callable[[BeatReply, Callable[[], None]], None],
        on_lapse: Callable[[], None],
    ) -> None:
        """Create a heartbeat; it calls back in the event loop in which it runs.

        Args:
            on_reply: called with each reply, and a function that extends the lease by it.
            on_lapse: called once when the lease is about to end.
        """
        self._store = store
        self._request = BeatRequest(worker=worker, lease_ms=lease.ms, lanes=lanes, name=name)
        self._held = held
        self._lease = lease
        self._timing = timing
        self._on_reply = on_reply
        self._on_lapse = on_lapse
        self._poked = asyncio.Event()
        self._beaten_at = float("-inf")
        self._store_now = -1
        self._still = False

    def poke(self) -> None:
        """Beat early, because there is progress to send."""
        self._poked.set()

    async def run(self) -> None:
        """Beat until cancelled.

        Raises:
            StoreError: the error is permanent.
        """
        lapsed = False
        while True:
            alive = await self._beat()
            if alive:
                lapsed = False
                # From when it was sent, so that the next one still precedes `stop_by` after a late
                # reply.
                due = self._beaten_at + self._lease.interval
                seconds = max(due - self._timing.monotonic(), 0)
            else:
                late = self._lease.lapsing(self._timing.monotonic())
                if late and not lapsed:
                    lapsed = True
                    _log.error("lease lapsing: no beat reached the store; stopping handlers")
                    self._on_lapse()
                seconds = min(self._lease.interval / 8, 1.0)
            if await self._timing.wait(self._poked, seconds) and alive:
                rest = self._beaten_at + SHORTEST_GAP - self._timing.monotonic()
                await self._timing.pause(max(rest, 0))
            self._poked.clear()

    async def leave(self) -> None:
        """Send the last beat, which reports that the worker has stopped and holds no runs."""
        request, _ = self._held.listed()
        progress = self._held.take_progress()
        last = replace(self._request, request=request, progress=progress, leaving=True)
        await self._store.beat(last)

    async def _beat(self) -> bool:
        """Send one beat, and return whether the store answered it."""
        request, running = self._held.listed()
        progress = self._held.take_progress()
        sent = self._timing.monotonic()
        # A beat that hangs must not delay the check that the lease is about to end.
        limit = max(self._lease.stop_by - sent, self._lease.interval / 4)
        try:
            async with self._timing.limit(min(limit, self._lease.interval * 2)):
                reply = await self._store.beat(
                    replace(self._request, running=running, request=request, progress=progress)
                )
        except (*PASSING, TimeoutError) as error:
            _log.warning("beat: %s", str(error) or "the store did not answer in time")
            self._held.put_back(progress)
            return False
        self._watch_time(sent, reply.now)
        self._beaten_at = sent
        left_ms = reply.lease_until - reply.now
        self._on_reply(reply, partial(self._lease.extend, sent, left_ms))
        return True

    def _watch_time(self, sent: float, now: int) -> None:
        """Log once if the store's time has stopped, because its clock was set back."""
        if now != self._store_now:
            self._store_now, self._still = now, False
        elif not self._still and sent - self._beaten_at >= MUST_ADVANCE_AFTER:
            self._still = True
            _log.error(
                "store time stopped at=%s: the store's clock was set back, and nothing falls due"
                " until it has caught up; `headway doctor` shows by how much",
                format_instant(now),
            )


class HeartbeatThread:
    """Runs a heartbeat in a separate thread, which no handler can block.

    Attributes:
        ended: set in the worker's loop when the thread has ended.
    """

    def __init__(
        self,
        beat: Callable[[], Coroutine[Any, Any, None]],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        """Create the thread; the running loop is taken as the worker's.

        Args:
            beat: returns the heartbeat's coroutine; called in the thread.
            on_crash: called in the worker's loop with the error that ended the heartbeat.
        """
        self.ended = asyncio.Event()
        self._beat = beat
        self._on_crash = on_crash
        self._worker_loop = asyncio.get_running_loop()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        # A daemon, so that a heartbeat that hangs in a store cannot keep the program from exiting.
        self._thread = threading.Thread(target=self._main, name="headway-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread, and wait until its heartbeat runs."""
        self._thread.start()
        self._ready.wait()

    def call(self, what: Callable[[], object]) -> None:
        """Call a function in the thread's loop, if the loop still runs."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the thread may have ended, and its loop with it
                self._loop.call_soon_threadsafe(what)

    def stop(self) -> None:
        """Ask the heartbeat to stop; `ended` is set when it has."""
        if self._task is not None:
            self.call(self._task.cancel)

    def _main(self) -> None:
        try:
            asyncio.run(self._live())
        except Exception as error:  # noqa: BLE001  (the worker raises it)
            self._in_worker_loop(lambda error=error: self._on_crash(error))
        finally:
            self._ready.set()
            self._in_worker_loop(self.ended.set)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._beat())
        self._ready.set()
        with suppress(asyncio.CancelledError):
            await self._task

    def _in_worker_loop(self, what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the worker's loop may have ended already
            self._worker_loop.call_soon_threadsafe(what)
