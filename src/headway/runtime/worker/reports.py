"""What a worker reports of its work: each failed attempt, and a line of progress a minute."""

from __future__ import annotations

import inspect
import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from headway.contract.outcomes import Died, Failed, Outcome, Returned
from headway.core.duration import format_duration
from headway.core.errors import HandlerCancelled, InvalidValue, LeaseLost
from headway.runtime.answers import Dead
from headway.runtime.job import Job
from headway.runtime.timing import Timing
from headway.runtime.worker.endings import HandlerCrashed
from headway.runtime.worker.ready_queue import ReadyQueue

PROGRESS_EVERY = 60.0
"""Seconds between two lines of progress."""

Becomes = Literal["retry", "dead", "awaiting", "cancelled", "lost"]

_STOPPED = (CancelledError, HandlerCancelled, LeaseLost)

_log = logging.getLogger("headway.worker")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A failed attempt, as the hooks of `App.on_failure` get it.

    Attributes:
        job: the run that failed.
        error: what was raised; None if the handler's answer was unusable.
        text: the error as it is recorded with the run.
        becomes: what follows: "retry", "dead" (no attempt is left or wanted), "awaiting" (the
            handler raised after its hand-over), "cancelled", or "lost" (the run is not live any
            more, and the store does not record the error).
        retry_in_ms: of a retry, the delay.
    """

    job: Job
    error: BaseException | None
    text: str
    becomes: Becomes
    retry_in_ms: int | None = None


OnFailure = Callable[[Failure], object]


def check_hook(hook: OnFailure) -> OnFailure:
    """Validate a hook of `App.on_failure`.

    Raises:
        InvalidValue: it is a coroutine function, which would never be awaited.
    """
    if inspect.iscoroutinefunction(hook):
        message = f"the on_failure hook {hook.__qualname__!r} is an async function"
        raise InvalidValue(message, hint="write a plain def that returns quickly")
    return hook


class Failures:
    """Logs each failed attempt, counts it, and calls the hooks.

    Attributes:
        count: attempts that failed so far.
    """

    def __init__(self, hooks: Iterable[OnFailure], timing: Timing) -> None:
        self.count = 0
        self._hooks = tuple(hooks)
        self._timing = timing

    def report(self, job: Job, outcome: Outcome | None, error: BaseException | None) -> None:
        """Report a run whose handler has ended, if it failed.

        Args:
            job: the run.
            outcome: what the store is going to be sent; None if the run is not live any more.
            error: what the handler raised, or returned.
        """
        failure = self._failure(job, outcome, error)
        if failure is None:
            return
        self.count += 1
        _log_failure(failure)
        for hook in self._hooks:
            try:
                hook(failure)
            except Exception:  # noqa: BLE001  (a user's hook may raise anything)
                _log.exception("on_failure hook failed hook=%(hook)r", {"hook": hook})

    def _failure(
        self, job: Job, outcome: Outcome | None, error: BaseException | None
    ) -> Failure | None:
        stopped = isinstance(error, _STOPPED) or (isinstance(error, HandlerCrashed) and error.died)
        becomes: Becomes
        retry_in_ms = None
        match outcome:
            case Failed(error=text):
                becomes, retry_in_ms = self._next_try(job, outcome)
            case Died() if not (job.stop == "cancel" and stopped):
                text, becomes = outcome.error or outcome.reason, "dead"
            case Returned(error=text) if text:
                becomes = "awaiting"
            case None if error is not None and not stopped:
                text, becomes = f"{type(error).__name__}: {error}", "lost"
            case _:
                return None
        text = text or type(error).__name__
        return Failure(job=job, error=error, text=text, becomes=becomes, retry_in_ms=retry_in_ms)

    def _next_try(self, job: Job, outcome: Failed) -> tuple[Becomes, int | None]:
        """Work out what the store will make of a failed run: it applies the same policy."""
        retry = job.claimed.policy.retry
        if job.stop == "cancel":
            return "cancelled", None
        if retry.exhausted(job.attempt):
            return "dead", None
        if outcome.until_at is not None:
            return "retry", max(0, outcome.until_at - self._timing.wall_at())
        if outcome.after_ms is not None:
            return "retry", max(0, outcome.after_ms)
        return "retry", retry.delay_ms(job.attempt, job.ref)


def _log_failure(failure: Failure) -> None:
    job, error = failure.job, failure.error
    said: dict[str, Any] = {
        "kind": job.kind,
        "id": job.id,
        "attempt": job.attempt,
        "error": failure.text.partition("\n")[0],
    }
    facts = "kind=%(kind)s id=%(id)s attempt=%(attempt)d error=%(error)r"
    if failure.retry_in_ms is not None:
        said["retry_in"] = format_duration(failure.retry_in_ms)
        _log.warning(f"job failed {facts} retry_in=%(retry_in)s", said)
        return
    # There may be no further attempt that shows the error, so where it was raised is logged too.
    # A deliberate one says all that its handler has to say.
    raised = error is not None and error.__traceback__ is not None
    trace = error if raised and not isinstance(error, Dead) else None
    if isinstance(error, HandlerCrashed):
        # It was raised in another process, and its text has the traceback of there.
        trace, said["exception"] = None, error.text
        facts = f"{facts}\n%(exception)s"
    if failure.becomes == "dead":
        _log.error(f"job dead {facts}", said, exc_info=trace)
    else:
        said["becomes"] = failure.becomes
        _log.warning(f"job failed becomes=%(becomes)s {facts}", said, exc_info=trace)


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
