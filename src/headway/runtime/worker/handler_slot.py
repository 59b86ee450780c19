"""The queue of claimed jobs, and the handler slots that run them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context, copy_context
from typing import Any

from headway.contract.claims import Claimed
from headway.contract.outcomes import Died, Failed, Outcome, Released, Succeeded
from headway.core.errors import InvariantBroken
from headway.runtime.handler import ExecutionMode
from headway.runtime.job import HandlerContext, Job, Stop
from headway.runtime.kind import Kind
from headway.runtime.timing import Timing
from headway.runtime.worker.lease import Held, Lease, Run
from headway.runtime.worker.outcomes import Failures, outcome_of_error, outcome_of_return
from headway.runtime.worker.plans import Plans, StagePlan
from headway.runtime.worker.settler import Settler


class ReadyQueue:
    """The claimed jobs that wait for a handler, and the number of free handlers.

    Attributes:
        busy: number of handlers running a job.
        reserved: number of handlers that must not take a plain job, because a claim counts on them.
        gated: jobs with gates, each with its latest start, in seconds on the worker's clock.
        plain: jobs without gates.
        low_mark: wake the claimer when this many plain jobs are left; -1 for never.
        hungry: whether to wake the claimer when a handler finds no job.
        done: number of runs ended so far.
        put: number of plain jobs added so far, not counting those removed unstarted.
        filled: set when plain jobs are added; the waiter clears it.
        asked: wakes the claimer.
        sleep: the claimer's wait for wakes of the store; None while it does not wait.
        idle: set when a handler has found no job; the waiter clears it.
    """

    def __init__(
        self, size: int, settler: Settler, held: Held, lease: Lease, timing: Timing
    ) -> None:
        self.size = size
        self.lease = lease
        self.busy = 0
        self.reserved = 0
        self.gated: deque[tuple[Claimed, float]] = deque()
        self.plain: deque[Claimed] = deque()
        self.low_mark = -1
        self.hungry = False
        self.done = 0
        self.put = 0
        self.filled = asyncio.Event()
        self.asked = asyncio.Event()
        self.sleep: asyncio.Future[None] | None = None
        self.idle = asyncio.Event()
        self.settler = settler
        self.held = held
        self.timing = timing
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def free(self) -> int:
        """Number of handlers that could start a gated job at once."""
        return self.size - self.busy - len(self.gated)

    def take(self, jobs: Iterable[Claimed], claimed_at: float) -> int:
        """Add the jobs of a claim.

        Args:
            claimed_at: earliest possible time of the claim, in seconds on the worker's clock.

        Returns:
            The number of jobs with gates among them.
        """
        gated, ready = 0, len(self.plain)
        for claimed in jobs:
            if claimed.gated:
                gated += 1
                within = claimed.policy.start_within_ms / 1000
                self.gated.append((claimed, claimed_at + within))
            else:
                self.plain.append(claimed)
        if len(self.plain) > ready:
            self.put += len(self.plain) - ready
            self.filled.set()
        self.wake()
        return gated

    @property
    def is_idle(self) -> bool:
        """Whether no handler runs and no job is ready."""
        return not self.busy and not self.plain and not self.gated

    @property
    def started(self) -> int:
        """Number of plain jobs that handlers have taken so far."""
        return self.put - len(self.plain)

    def next(self) -> Claimed | None:
        """Take the job that a free handler must start now; None if it has to wait.

        Gated jobs past their latest start are handed back.
        """
        now = self.timing.monotonic()
        if self.lease.lapsing(now):
            # Another worker may have these jobs. The reply to the next beat shows it.
            return None
        gated = self.gated
        if gated and gated[0][1] < now:
            self._hand_back_late(now)
        if gated:
            return gated.popleft()[0]
        plain = self.plain
        if not plain or self.busy + self.reserved >= self.size:
            return None
        if len(plain) - 1 == self.low_mark:
            self.ask()
        return plain.popleft()

    def _hand_back_late(self, now: float) -> None:
        handed_back = 0
        while self.gated and self.gated[0][1] < now:
            claimed, _ = self.gated.popleft()
            self.settler.put(Released(claimed.id, claimed.run, reason="not started in time"))
            handed_back += 1
        _log.warning(
            "jobs handed back count=%d: start_within passed between their claim and a free handler;"
            " the rates they need count these starts",
            handed_back,
        )

    def ask(self) -> None:
        """Wake the claimer."""
        self.asked.set()
        if self.sleep is not None:
            self.sleep.cancel()

    def wake(self) -> None:
        """Wake as many waiting handlers as there are jobs for."""
        resting = self._waiting
        for _ in range(min(len(resting), len(self.gated) + len(self.plain))):
            future = resting.pop()
            if not future.done():
                future.set_result(None)

    async def wait_for_job(self) -> None:
        """Wait until there may be a job for one more handler.

        Raises:
            CancelledError: the handler's slot was cancelled.
        """
        if self.hungry:
            self.ask()
        self.idle.set()
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                # Otherwise it would be woken instead of a handler that still waits.
                self._waiting.remove(future)
            raise

    def hand_back(self, reason: str) -> None:
        """Hand back all jobs that no handler has taken."""
        for claimed, _ in self.gated:
            self.settler.put(Released(claimed.id, claimed.run, reason=reason))
        self.gated.clear()
        self.keep_ready(0, reason)

    def keep_ready(self, n: int, reason: str) -> None:
        """Keep the first `n` plain jobs, and hand back the others."""
        plain = self.plain
        surplus = [plain.pop() for _ in range(len(plain) - n)]
        self.put -= len(surplus)
        for claimed in reversed(surplus):
            self.settler.put(Released(claimed.id, claimed.run, reason=reason))

    def withdraw(self, runs: frozenset[Run]) -> list[Claimed]:
        """Remove these runs from the queue, and return those that were in it."""
        found = [one for one, _ in self.gated if (one.id, one.run) in runs]
        found += [one for one in self.plain if (one.id, one.run) in runs]
        if found:
            # In place, because the slots keep references to these deques.
            gated = [pair for pair in self.gated if (pair[0].id, pair[0].run) not in runs]
            plain = [one for one in self.plain if (one.id, one.run) not in runs]
            self.gated.clear()
            self.gated.extend(gated)
            self.put -= len(self.plain) - len(plain)
            self.plain.clear()
            self.plain.extend(plain)
        return found


_log = logging.getLogger("headway.worker")

TURN = 64
"""Maximum number of jobs a slot runs without yielding to the event loop."""


class HandlerSlot:
    """Takes jobs from the queue and runs their handlers, one at a time."""

    def __init__(
        self,
        queue: ReadyQueue,
        plans: Plans,
        context: HandlerContext,
        kinds: Mapping[str, Kind],
        failures: Failures,
    ) -> None:
        self.job: Job | None = None
        self._plan: StagePlan | None = None
        self._queue = queue
        self._plans = plans
        self._context = context
        self._kinds = kinds
        self._failures = failures
        self._aborted = False
        self._task: asyncio.Task[None] | None = None
        self._run: asyncio.Task[Any] | None = None
        self._base_context = Context()
        self._on_crash: Callable[[BaseException], None] = lambda _: None

    def start(self, context: Context, on_crash: Callable[[BaseException], None]) -> None:
        """Start taking jobs; called by the task of the worker's run.

        Args:
            context: context variables that each handler starts with.
            on_crash: called if the slot itself fails.
        """
        self._run = asyncio.current_task()
        self._base_context = context
        self._on_crash = on_crash
        self._restart()

    def interrupt(self, why: Stop) -> None:
        """Stop the running handler, if there is one: cancel its task or kill its process.

        A handler in a thread cannot be stopped, but sees the request in `job.cancelled`.
        """
        job, plan = self.job, self._plan
        if job is None:
            return
        job.request_stop(why)
        match plan.place if plan else ExecutionMode.LOOP:
            case ExecutionMode.LOOP:
                self.task.cancel()
            case ExecutionMode.PROCESS:
                self._plans.processes.kill(job.claimed)
            case ExecutionMode.THREAD:
                pass

    def abort(self) -> None:
        """Stop taking jobs, and abandon the running one."""
        self._aborted = True
        self.task.cancel()

    @property
    def task(self) -> asyncio.Task[None]:
        """The slot's current task.

        Raises:
            InvariantBroken: the slot was never started.
        """
        if self._task is None:
            message = "a handler slot was never started"
            raise InvariantBroken(message)
        return self._task

    @property
    def in_thread(self) -> bool:
        """Whether it runs a handler in a thread, which cannot be stopped from outside."""
        return (
            self.job is not None
            and self._plan is not None
            and self._plan.place is ExecutionMode.THREAD
        )

    async def _work(self) -> None:  # noqa: C901, PLR0912  (the hot path: each call costs jobs a second)
        queue, plans, context = self._queue, self._plans, self._context
        put, find, take = queue.settler.put, plans.find, queue.next
        home = self._base_context
        turn = 0
        while True:
            claimed = take()
            if claimed is None:
                await queue.wait_for_job()
                turn = 0
                continue
            queue.busy += 1
            job = self.job = Job(claimed, context)
            plan = self._plan = find(claimed)
            try:
                if plan is None or claimed.policy.timeout_ms is not None:
                    answer = await plans.run(plan, job)
                else:
                    answer = await plan.call(job)
            except BaseException as error:  # noqa: BLE001  (whatever a handler raises is its failure)
                outcome = self._failed(job, error)
            else:
                if answer is None and not job.touched:
                    outcome = Succeeded(claimed.id, claimed.run)
                else:
                    outcome = self._answered(job, answer)
            self.job = None
            queue.busy -= 1
            queue.done += 1
            if outcome is None:
                queue.held.runs.pop((claimed.id, claimed.run), None)
            else:
                put(outcome)
            if job.stop is not None:
                self._clear_cancellation()
            if copy_context() != home:
                # The handler left context variables behind; the next one must not see them.
                self._restart()
                return
            turn += 1
            if turn == TURN:
                turn = 0
                await queue.timing.pause(0)

    def _answered(self, job: Job, answer: object) -> Outcome | None:
        """Return the outcome of a handler that returned; report it if it is a failure."""
        outcome = outcome_of_return(job, answer, self._kinds)
        if isinstance(outcome, Failed | Died):
            error = answer if isinstance(answer, BaseException) else None
            self._failures.report(job, outcome, error)
        return outcome

    def _failed(self, job: Job, error: BaseException) -> Outcome | None:
        """Return the outcome of a handler that raised; re-raise what is meant for the slot."""
        if isinstance(error, GeneratorExit | KeyboardInterrupt) or self._aborted:
            raise error
        if isinstance(error, asyncio.CancelledError):
            if job.stop is None and self._all_cancelled:
                place = self._plan.place if self._plan else ExecutionMode.LOOP
                if place is ExecutionMode.THREAD:
                    raise error  # the handler itself still runs, so its run is kept
                if place is ExecutionMode.PROCESS:
                    self._plans.processes.kill(job.claimed)
                job.request_stop("stop")
            self._clear_cancellation()
        outcome = outcome_of_error(job, error, self._kinds)
        self._failures.report(job, outcome, error)
        return outcome

    @property
    def _all_cancelled(self) -> bool:
        """Whether the worker's run is being cancelled, as by `asyncio.run` with all other tasks."""
        return self._run is not None and self._run.cancelling() > 0

    def _clear_cancellation(self) -> None:
        """Undo a cancellation that was meant for the handler."""
        task = self._task
        while task is not None and task.cancelling():
            task.uncancel()

    def _restart(self) -> None:
        """Continue in a new task with a fresh copy of the worker's context."""
        task = asyncio.get_running_loop().create_task(
            self._work(), context=self._base_context.copy()
        )
        task.add_done_callback(self._ended)
        self._task = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            if not (self._aborted or self._all_cancelled or task.get_loop().is_closed()):
                # A handler may have left a timer behind that cancels the task it ran in.
                _log.warning("handler slot restarted: its task was cancelled from outside")
                self._restart()
            return
        error = task.exception()
        if error is not None:
            self._on_crash(error)
