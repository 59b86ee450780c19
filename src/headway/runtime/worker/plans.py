"""Plans: how each kind's handlers are called, decided once when the worker is created."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Generic, Literal, TypeVar, cast

import msgspec

from headway.contract.claims import Claimed
from headway.contract.store import Store
from headway.core.errors import HandlerError, UnknownKind
from headway.runtime.handler import ExecutionMode, Handler
from headway.runtime.handler_results import Dead
from headway.runtime.job import HandlerContext, Job
from headway.runtime.kind import NOOP, Kind
from headway.runtime.reconciliation import reconcile
from headway.runtime.records import text_of
from headway.runtime.timing import Timing
from headway.runtime.worker.outcomes import HandlerCrashed, Unusable
from headway.runtime.worker.processes import Processes

_Call = Callable[[Job], Awaitable[object]]
CallNext = Callable[[], Awaitable[object]]
Middleware = Callable[[Job, CallNext], Awaitable[object]]
UnknownKindAction = Literal["retry", "dead"]
"""What a worker does with a job whose kind it does not know."""


Value = TypeVar("Value")

START_LIMIT = 60.0
"""Seconds after which the timeout of a handler begins even if its process has not begun it."""


class StagePlan:
    """How one stage of one kind is called.

    Attributes:
        place: where the handler runs, and so how it can be stopped.
    """

    __slots__ = ("call", "place")

    def __init__(self, call: _Call, place: ExecutionMode) -> None:
        self.call = call
        self.place = place


class Plans:
    """The plans of a worker, and the threads and processes that its handlers run in."""

    def __init__(  # noqa: PLR0913  (what a worker knows, all by name)
        self,
        kinds: Mapping[str, Kind],
        middleware: Sequence[Middleware],
        store: Store,
        context: HandlerContext,
        *,
        size: int,
        timing: Timing,
        unknown: UnknownKindAction = "retry",
    ) -> None:
        """Create a plan for each stage of each kind.

        Args:
            middleware: the first one is the outermost.
            size: maximum number of threads.
        """
        self._unknown: UnknownKindAction = unknown
        self._kinds = kinds
        self.processes = Processes()
        self._threads = Threads(size)
        self._store = store
        self._context = context
        self._timing = timing
        self._middleware = tuple(middleware)
        self._staged = {
            (name, stage): self._plan(kind, handler)
            for name, kind in kinds.items()
            for stage, handler in kind.handlers.items()
        }
        # A job without a stage, of a kind that has stages, starts with the first one.
        self._first = {
            name: self._staged[name, stage]
            for name, kind in kinds.items()
            for stage in [next(iter(kind.handlers))]
        }

    def find(self, claimed: Claimed) -> StagePlan | None:
        """Return the plan for a job, or None if this worker does not know its kind or stage."""
        if claimed.stage:
            return self._staged.get((claimed.kind, claimed.stage))
        return self._first.get(claimed.kind)

    async def run(self, plan: StagePlan | None, job: Job) -> object:
        """Call the handler of a job that has a timeout, or refuse a job without a plan.

        Raises:
            UnknownKind: there is no plan, and another worker may try the job.
            Dead: there is no plan, and the job must not be tried again.
            TimeoutError: the handler exceeded its timeout, or raised this itself.
        """
        if plan is None:
            stage = f" with the stage {job.stage!r}" if job.stage else ""
            message = f"this worker has no handler for the kind {job.kind!r}{stage}"
            if self._unknown == "dead":
                reason = f"{UnknownKind.code}: {message}"
                raise Dead(reason)
            raise UnknownKind(message, hint="deploy the app that has it, or serve other lanes")
        if plan.place is ExecutionMode.PROCESS:
            return await plan.call(job)
        if plan.place is ExecutionMode.THREAD:
            return await self._run_until_timeout(plan.call(job), job)
        scope = self._timing.limit(_timeout(job))
        try:
            async with scope:
                return await plan.call(job)
        except TimeoutError:
            if scope.expired():
                job.request_stop("timeout")
            raise

    def close(self) -> None:
        """Release the threads and end the processes."""
        self._threads.close()
        self.processes.close()

    async def _run_until_timeout(
        self, handler: Awaitable[Value], job: Job, begun: asyncio.Event | None = None
    ) -> Value:
        """Run a handler in a thread or a process; at its timeout, request its stop or kill it.

        Args:
            begun: set when a process has begun to run the handler.
        """
        watch = asyncio.ensure_future(self._stop_at_timeout(job, begun))
        try:
            return await handler
        finally:
            watch.cancel()

    async def _stop_at_timeout(self, job: Job, begun: asyncio.Event | None) -> None:
        if begun is not None:
            await self._timing.wait(begun, START_LIMIT)
        await self._timing.pause(_timeout(job))
        if job.stop is None:
            job.request_stop("timeout")
            self.processes.kill(job.claimed)

    def _plan(self, kind: Kind, handler: Handler) -> StagePlan:
        call = self._call_of(kind, handler)
        for one in reversed(self._middleware):
            call = _around(one, call)
        return StagePlan(call, ExecutionMode.LOOP if kind.asks else handler.place)

    def _call_of(self, kind: Kind, handler: Handler) -> _Call:
        if kind.asks is not None:
            ask = kind.asks
            return lambda job: reconcile(job, self._store, ask, self._kinds)
        match handler.place:
            case ExecutionMode.THREAD:
                return lambda job: self._threads.run(lambda: handler.call(job, job.claimed.args))
            case ExecutionMode.PROCESS:
                return lambda job: self._in_process(job, handler)
            case ExecutionMode.LOOP:
                return _in_loop(kind, handler)

    async def _in_process(self, job: Job, handler: Handler) -> object:
        note = partial(self._context.note_progress, job.id, job.run)
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        running = self._threads.run(
            lambda: self.processes.run(
                job,
                handler,
                self._context.write_from_thread,
                note,
                lambda: loop.call_soon_threadsafe(begun.set),
            )
        )
        if job.claimed.policy.timeout_ms is not None:
            running = self._run_until_timeout(running, job, begun)
        done = await running
        job.follow(done.then, done.close)
        if done.raised is not None:
            raise done.raised
        if done.error:
            raise HandlerCrashed(done.error)
        if done.unusable:
            return Unusable(done.unusable)
        return done.answer if done.result is None else msgspec.Raw(done.result)


def _timeout(job: Job) -> float:
    return (job.claimed.policy.timeout_ms or 0) / 1000


def _in_loop(kind: Kind, handler: Handler) -> _Call:
    fn = cast("Callable[..., Awaitable[object]]", handler.fn)
    if kind.name == NOOP:
        return fn
    if not handler.arguments.names and not handler.arguments.open and handler.wants_job:
        # Without arguments there is nothing to decode; `_decode_and_call` refuses unexpected ones.
        return lambda job: fn(job) if job.claimed.args == b"{}" else _decode_and_call(handler, job)
    return lambda job: _decode_and_call(handler, job)


def _decode_and_call(handler: Handler, job: Job) -> Awaitable[object]:
    return cast("Awaitable[object]", handler.call(job, job.claimed.args))


def _around(one: Middleware, call: _Call) -> _Call:
    return lambda job: one(job, partial(call, job))


class Threads:
    """A pool of threads, as many as the worker has handler slots; each is started when needed."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="headway-handler")

    async def run(self, call: Callable[[], Value]) -> Value:
        """Call a function in a thread, with the caller's context variables."""
        loop, context = asyncio.get_running_loop(), copy_context()
        ended = await loop.run_in_executor(self._pool, lambda: context.run(_Ended[Value], call))
        return ended.get()

    def close(self) -> None:
        """Release the threads without waiting; a running call continues until it returns."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Ended(Generic[Value]):
    """The result or error of a call: a future cannot carry some errors, such as StopIteration."""

    __slots__ = ("_error", "_value")

    def __init__(self, call: Callable[[], Value]) -> None:
        self._error: BaseException | None = None
        try:
            self._value = call()
        except BaseException as error:  # noqa: BLE001  (whatever a handler raises is its failure)
            self._error = error

    def get(self) -> Value:
        error, self._error = self._error, None
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            # Only the main thread gets signals, so the handler itself raised it. In the event loop
            # it would end the worker.
            message = f"the handler raised {text_of(error)}"
            raise HandlerError(message) from error
        if error is not None:
            try:
                raise error
            finally:
                # Its traceback has this frame: a cycle that would keep the handler's arguments.
                del error
        return self._value
