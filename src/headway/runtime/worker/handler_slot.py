"""A handler slot: runs one job after another, and says how each ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context

from headway.contract.outcomes import Died, Failed, Outcome, Succeeded
from headway.core.errors import InvariantBroken
from headway.runtime.handler import Place
from headway.runtime.job import HandlerContext, Job, Stop
from headway.runtime.kind import Kind
from headway.runtime.worker.endings import answered, raised
from headway.runtime.worker.plans import Plan, Plans
from headway.runtime.worker.ready_queue import ReadyQueue
from headway.runtime.worker.reports import Failures

TURN = 64
"""Jobs that never wait for anything are run in a row at most so many times."""


class HandlerSlot:
    """One handler at a time.

    Attributes:
        job: the run whose handler runs now; None between two.
    """

    def __init__(
        self,
        queue: ReadyQueue,
        plans: Plans,
        context: HandlerContext,
        kinds: Mapping[str, Kind],
        failures: Failures,
    ) -> None:
        self.job: Job | None = None
        self._plan: Plan | None = None
        self._queue = queue
        self._plans = plans
        self._context = context
        self._kinds = kinds
        self._failures = failures
        self._aborted = False
        self._task: asyncio.Task[None] | None = None
        self._base_context = Context()
        self._on_crash: Callable[[BaseException], None] = lambda _: None

    def start(self, context: Context, on_crash: Callable[[BaseException], None]) -> None:
        """Start to take jobs.

        Args:
            context: in which each handler begins.
            on_crash: called if the slot itself fails.
        """
        self._base_context = context
        self._on_crash = on_crash
        self._restart()

    def interrupt(self, why: Stop) -> None:
        """Ask the running handler to stop, if its place allows it."""
        job, plan = self.job, self._plan
        if job is None:
            return
        job.request_stop(why)
        match plan.place if plan else Place.LOOP:
            case Place.LOOP:
                # The task waits somewhere inside the handler, and there it will be raised.
                self.task.cancel()
            case Place.PROCESS:
                self._plans.processes.kill(job.claimed)
            case Place.THREAD:
                pass  # it looks at job.cancelled, or runs to its end

    def abort(self) -> None:
        """Take no more jobs, and give up what runs."""
        self._aborted = True
        self.task.cancel()

    @property
    def task(self) -> asyncio.Task[None]:
        """The task at hand; a slot that was started has one.

        Raises:
            InvariantBroken: it was not started.
        """
        if self._task is None:
            message = "a handler slot was never started"
            raise InvariantBroken(message)
        return self._task

    @property
    def in_thread(self) -> bool:
        """Whether what runs now cannot be stopped from outside."""
        return self.job is not None and self._plan is not None and self._plan.place is Place.THREAD

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
                    answer = await plan.begin(job)
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
        """What a handler's answer means; one that returns Retry or Dead has failed as well."""
        outcome = answered(job, answer, self._kinds)
        if isinstance(outcome, Failed | Died):
            error = answer if isinstance(answer, BaseException) else None
            self._failures.report(job, outcome, error)
        return outcome

    def _failed(self, job: Job, error: BaseException) -> Outcome | None:
        """What an exception means, unless it is meant for the slot itself."""
        if isinstance(error, GeneratorExit | KeyboardInterrupt) or self._aborted:
            raise error
        if isinstance(error, asyncio.CancelledError):
            self._clear_cancellation()
        outcome = raised(job, error, self._kinds)
        self._failures.report(job, outcome, error)
        return outcome

    def _clear_cancellation(self) -> None:
        """Forget a cancellation that was meant for the handler."""
        task = self._task
        while task is not None and task.cancelling():
            task.uncancel()

    def _restart(self) -> None:
        """Go on in a new task, whose context is as the worker's was."""
        task = asyncio.get_running_loop().create_task(
            self._work(), context=self._base_context.copy()
        )
        task.add_done_callback(self._ended)
        self._task = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_crash(error)
