"""A handler slot: runs one job after another, and says how each ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context

from headway.contract.outcomes import Died, Failed, Outcome, Succeeded
from headway.core.errors import InvariantBroken
from headway.runtime.desk import Desk
from headway.runtime.handler import Place
from headway.runtime.job import Job, Stop
from headway.runtime.kind import Kind
from headway.runtime.worker.endings import answered, raised
from headway.runtime.worker.floor import Floor
from headway.runtime.worker.plans import Plan, Plans
from headway.runtime.worker.reports import Failures

TURN = 64
"""Jobs that never wait for anything are run in a row at most so many times."""


class Slot:
    """One handler at a time.

    Attributes:
        job: the run whose handler runs now; None between two.
    """

    def __init__(
        self,
        floor: Floor,
        plans: Plans,
        desk: Desk,
        kinds: Mapping[str, Kind],
        failures: Failures,
    ) -> None:
        self.job: Job | None = None
        self._plan: Plan | None = None
        self._floor = floor
        self._plans = plans
        self._desk = desk
        self._kinds = kinds
        self._failures = failures
        self._aborted = False
        self._task: asyncio.Task[None] | None = None
        self._home = Context()
        self._on_crash: Callable[[BaseException], None] = lambda _: None

    def start(self, context: Context, on_crash: Callable[[BaseException], None]) -> None:
        """Starts to take jobs.

        Args:
            context: in which each handler begins.
            on_crash: called if the slot itself fails.
        """
        self._home = context
        self._on_crash = on_crash
        self._go_on()

    def interrupt(self, why: Stop) -> None:
        """Tells the handler that runs now to stop, as far as it can be told."""
        job, plan = self.job, self._plan
        if job is None:
            return
        job.told_to_stop(why)
        match plan.place if plan else Place.LOOP:
            case Place.LOOP:
                # The task waits somewhere inside the handler, and there it will be raised.
                self.task.cancel()
            case Place.PROCESS:
                self._plans.processes.kill(job.claimed)
            case Place.THREAD:
                pass  # it looks at job.cancelled, or runs to its end

    def abort(self) -> None:
        """Takes no more jobs, and gives up what runs."""
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
        floor, plans, desk = self._floor, self._plans, self._desk
        put, find, take = floor.settler.put, plans.find, floor.next
        home = self._home
        turn = 0
        while True:
            claimed = take()
            if claimed is None:
                await floor.rest()
                turn = 0
                continue
            floor.busy += 1
            job = self.job = Job(claimed, desk)
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
            floor.busy -= 1
            floor.done += 1
            if outcome is None:
                floor.held.runs.pop((claimed.id, claimed.run), None)
            else:
                put(outcome)
            if job.stop is not None:
                self._calm()
            if copy_context() != home:
                # The handler left context variables behind; the next one must not see them.
                self._go_on()
                return
            turn += 1
            if turn == TURN:
                turn = 0
                await floor.timing.pause(0)

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
            self._calm()
        outcome = raised(job, error, self._kinds)
        self._failures.report(job, outcome, error)
        return outcome

    def _calm(self) -> None:
        """Forgets a cancellation that was meant for the handler."""
        task = self._task
        while task is not None and task.cancelling():
            task.uncancel()

    def _go_on(self) -> None:
        """Goes on in a new task, whose context is as the worker's was."""
        task = asyncio.get_running_loop().create_task(self._work(), context=self._home.copy())
        task.add_done_callback(self._ended)
        self._task = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_crash(error)
