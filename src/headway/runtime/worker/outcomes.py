"""Turns the end of a handler into an outcome, and reports failed attempts."""

from __future__ import annotations

import inspect
import logging
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, TypeVar

from headway.contract.outcomes import (
    Died,
    Failed,
    FoundUnfit,
    NextStage,
    Outcome,
    Released,
    Returned,
    Snoozed,
    Succeeded,
)
from headway.core.duration import format_duration
from headway.core.errors import (
    HandlerCancelled,
    HandlerError,
    HandlerTimeout,
    HeadwayError,
    InvalidValue,
    LeaseLost,
    PayloadTooLarge,
)
from headway.core.gates.spec import GateUse
from headway.core.job import MAX_ERROR
from headway.runtime.handler_results import Dead, Next, Retry, Snooze, Unfit
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.kind_options import Gates
from headway.runtime.records import encode, text_of
from headway.runtime.timing import Timing

Function = TypeVar("Function", bound=Callable[..., Any])


class HandlerCrashed(HandlerError):
    """A handler failed in a separate process, or the process died.

    Attributes:
        text: the error to record.
    """

    code = "handler_crashed"

    def __init__(self, text: str, *, died: bool = False) -> None:
        super().__init__(text.partition("\n")[0])
        self.text = text
        self.died = died


@dataclass(frozen=True, slots=True)
class Unusable:
    """Stands for a result that a handler in a process returned, but JSON cannot represent.

    Attributes:
        error: why it cannot.
    """

    error: str


def outcome_of_return(job: Job, answer: object, kinds: Mapping[str, Kind]) -> Outcome | None:
    """Return the outcome of a handler that returned.

    Returns:
        The outcome, or None if the run is no longer live and must write nothing.
    """
    if job.stop == "lost":
        return None
    answer = job.forgotten() or answer
    if isinstance(answer, Retry | Dead):
        return outcome_of_error(job, answer, kinds)
    return _outcome_of_value(job, answer, kinds)


def outcome_of_error(job: Job, error: BaseException, kinds: Mapping[str, Kind]) -> Outcome | None:
    """Return the outcome of a handler that raised, or None if its run must write nothing."""
    stopped = isinstance(error, CancelledError | HandlerCancelled) or (
        isinstance(error, HandlerCrashed) and error.died
    )
    match job.stop:
        case "lost":
            return None
        case "cancel" if stopped and not job.handed:
            return Died(job.id, job.run, reason="cancelled", error="stopped: the job was cancelled")
        case "stop" if stopped and job.handing and not job.handed:
            # The hand-over may have been written. A hand-back would leave the job awaiting a signal
            # that never comes, because nothing was sent to the outside world.
            return Snoozed(job.id, job.run, after_ms=0, reason=_STOPPING)
        case "stop" if stopped and not job.handed:
            return Released(job.id, job.run, reason=_STOPPING)
        case "timeout" if not isinstance(error, Retry | Dead):
            return _failed(job, timed_out(job, error), kinds)
        case _:
            return _failed(job, error, kinds)


def timed_out(job: Job, cause: BaseException) -> HandlerTimeout:
    """Return the error of a handler that exceeded its kind's timeout."""
    message = f"the handler of {job.kind!r} exceeded its timeout"
    error = HandlerTimeout(message, hint=f"{job.claimed.policy.timeout_ms} ms")
    error.__cause__ = cause
    return error


_STOPPING = "its worker stopped"
_NOT_RAISED = "exceptions must derive from BaseException"
"""The text of Python's error about a raised object that is no exception."""
_MAX_LAST = 500
_RUNTIME = "headway.runtime."


def describe(error: BaseException) -> str:
    """Return an error's text to record: what was raised, then the traceback.

    The last line repeats what was raised, because it becomes the job's reason. The last line of a
    traceback will not do: it qualifies the class with its module, and may be the end of a longer
    message, a note, or a line of an exception group.
    """
    if isinstance(error, HandlerCrashed):
        return error.text[:MAX_ERROR]
    code = f"{error.code}: " if isinstance(error, HeadwayError) else ""
    raised_text = text_of(error)
    if isinstance(error, TypeError) and raised_text.endswith(_NOT_RAISED):
        raised_text += " (if this is an hw.Snooze, hw.Next or hw.Unfit: return it)"
    first = f"{code}{raised_text}"
    # The last frames of a deep trace are kept, because the error was raised there.
    trace = "".join(traceback.format_exception(*_outside(error), limit=-20)).rstrip()
    last = raised_text.strip().partition("\n")[0][:_MAX_LAST]
    frames, _, end = trace.rpartition("\n")
    text = f"{first}\n{frames if f'.{end}'.endswith(f'.{last}') else trace}\n{last}"
    if len(text) > MAX_ERROR:
        # Both ends of a long trace matter: the cause comes first, the raise last.
        half = MAX_ERROR // 2
        text = f"{text[: half - 3]}\n…\n{text[-half:]}"
    return text.encode("utf-8", "replace").decode()


def _outside(
    error: BaseException,
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return an error's exc_info, without the frames in which the runtime calls the handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_RUNTIME):
        trace = trace.tb_next
    return type(error), error, trace or error.__traceback__


def _outcome_of_value(job: Job, answer: object, kinds: Mapping[str, Kind]) -> Outcome:
    match answer:
        case Snooze():
            _, close = job.take_follow()
            moment = (answer.after_ms, answer.until_at)
            return Snoozed(job.id, job.run, (), close, *moment, text_of(answer.reason))
        case Next():
            return _next_stage(job, answer, kinds)
        case _ if job.handed:
            return Returned(job.id, job.run, *job.take_follow())
        case Unfit():
            reason = text_of(answer.reason)
            return FoundUnfit(job.id, job.run, *job.take_follow(), reason=reason)
        case _:
            return _succeeded(job, answer)


def _failed(job: Job, error: BaseException, kinds: Mapping[str, Kind]) -> Outcome:
    match error:
        case Retry():
            return _retried(job, error, kinds)
        case Dead():
            return Died(job.id, job.run, *job.take_follow(), reason=text_of(error.reason))
        case _ if job.handed:
            return Returned(job.id, job.run, *job.take_follow(), error=describe(error))
        case _:
            _, close = job.take_follow()
            return Failed(job.id, job.run, close=close, error=describe(error))


def _retried(job: Job, error: Retry, kinds: Mapping[str, Kind]) -> Outcome:
    gates: tuple[GateUse, ...] = ()
    if error.stage:
        try:
            gates = _gates(job, error.stage, error.gates, kinds)
        except HeadwayError as unusable:
            return Failed(job.id, job.run, error=describe(unusable))
    _, close = job.take_follow()
    return Failed(
        job.id,
        job.run,
        close=close + error.close,
        error=text_of(error.reason),
        after_ms=error.after_ms,
        until_at=error.until_at,
        stage=error.stage,
        gates=gates,
    )


def _gates(
    job: Job, stage: str, gates: Gates | None, kinds: Mapping[str, Kind]
) -> tuple[GateUse, ...]:
    return kinds[job.kind].uses(stage, job.lane, job.tenant, job.claimed.args, gates)


def _succeeded(job: Job, answer: object) -> Outcome:
    result = None
    if answer is not None and not isinstance(answer, Unusable):
        try:
            result = encode("result", answer)
        except (InvalidValue, PayloadTooLarge) as error:
            answer = Unusable(str(error))
    if isinstance(answer, Unusable):
        # The work is done; another attempt would do it twice.
        follow = job.take_follow()
        return Died(job.id, job.run, *follow, reason=answer.error, error=answer.error)
    return Succeeded(job.id, job.run, *job.take_follow(), result=result)


def _next_stage(job: Job, answer: Next, kinds: Mapping[str, Kind]) -> Outcome:
    try:
        gates = _gates(job, answer.stage, answer.gates, kinds)
    except HeadwayError as error:
        return Failed(job.id, job.run, error=describe(error))
    then, close = job.take_follow()
    return NextStage(job.id, job.run, then, close, stage=answer.stage, gates=gates)


Becomes = Literal["retry", "dead", "awaiting", "cancelled", "lost"]

_STOPPED = (CancelledError, HandlerCancelled, LeaseLost)

_log = logging.getLogger("headway.worker")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A failed attempt, passed to the hooks of `App.on_failure`.

    Attributes:
        job: the run that failed.
        error: the exception; None if the handler returned an invalid answer.
        text: the error as recorded with the run.
        becomes: what happens next: "retry", "dead" (no attempt is left or wanted), "awaiting" (the
            handler raised after its hand-over), "cancelled", or "lost" (the run is no longer live,
            and the store does not record the error).
        retry_in_ms: delay before the retry, if there is one.
    """

    job: Job
    error: BaseException | None
    text: str
    becomes: Becomes
    retry_in_ms: int | None = None


OnFailure = Callable[[Failure], object]


def check_function(what: str, fn: Function, *, yields: bool = False) -> Function:
    """Return a function that a program gives.

    Args:
        yields: whether it may be a generator, whose body a call does not run.

    Raises:
        InvalidValue: it cannot be called, or is a generator.
    """
    if not callable(fn):
        message = f"{what} must be a function, not {fn!r:.80}"
        raise InvalidValue(message, hint="pass the function itself")
    if not yields and (inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)):
        message = f"{what} must not be a generator, as {fn!r:.80} is"
        raise InvalidValue(message, hint="use return instead of yield")
    return fn


def check_hook(hook: OnFailure) -> OnFailure:
    """Validate a hook of `App.on_failure`.

    Raises:
        InvalidValue: it is a coroutine function, which would never be awaited, or not a function.
    """
    check_function("an on_failure hook", hook)
    if inspect.iscoroutinefunction(hook):
        message = f"the on_failure hook {hook.__qualname__!r} is an async function"
        raise InvalidValue(message, hint="write a plain def that returns quickly")
    return hook


class Failures:
    """Logs each failed attempt, counts it, and calls the hooks."""

    def __init__(self, hooks: Iterable[OnFailure], timing: Timing) -> None:
        self.count = 0
        self._hooks = tuple(hooks)
        self._timing = timing

    def report(self, job: Job, outcome: Outcome | None, error: BaseException | None) -> None:
        """Report a run whose handler has ended, if it failed.

        Args:
            outcome: the outcome to be written; None if the run is no longer live.
        """
        failure = self._failure(job, outcome, error)
        if failure is None:
            return
        self.count += 1
        try:
            _log_failure(failure)
        except Exception:  # noqa: BLE001  (a filter or handler of the program's logging may raise anything)
            # The run must still be settled. Python's logging reports errors of handlers like this.
            traceback.print_exc()
        for hook in self._hooks:
            try:
                hook(failure)
            except (Exception, SystemExit, CancelledError):  # noqa: BLE001  (a user's hook may raise anything)
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
                text = outcome.error or outcome.reason
                becomes = "cancelled" if job.stop == "cancel" else "dead"
            case Returned(error=text) if text:
                becomes = "awaiting"
            case None if error is not None and not stopped:
                text, becomes = text_of(error), "lost"
            case _:
                return None
        text = text or type(error).__name__
        return Failure(job=job, error=error, text=text, becomes=becomes, retry_in_ms=retry_in_ms)

    def _next_try(self, job: Job, outcome: Failed) -> tuple[Becomes, int | None]:
        """Predict the next state of a failed job, and its delay in ms, as the store decides it."""
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
    fields: dict[str, Any] = {
        "kind": job.kind,
        "id": job.id,
        "attempt": job.attempt,
        "error": failure.text.partition("\n")[0],
    }
    facts = "kind=%(kind)s id=%(id)s attempt=%(attempt)d error=%(error)r"
    if failure.retry_in_ms is not None:
        fields["retry_in"] = format_duration(failure.retry_in_ms)
        _log.warning(f"job failed {facts} retry_in=%(retry_in)s", fields)
        return
    # There may be no further attempt to show the error, so its traceback is logged too. Dead is
    # raised on purpose, and needs none.
    trace = None
    if error is not None and error.__traceback__ is not None and not isinstance(error, Dead):
        trace = _outside(error)
    if isinstance(error, HandlerCrashed):
        # It was raised in another process, and its text contains the traceback from there.
        trace, fields["exception"] = None, error.text
        facts = f"{facts}\n%(exception)s"
    if failure.becomes == "dead":
        _log.error(f"job dead {facts}", fields, exc_info=trace)
    else:
        fields["becomes"] = failure.becomes
        _log.warning(f"job failed becomes=%(becomes)s {facts}", fields, exc_info=trace)
