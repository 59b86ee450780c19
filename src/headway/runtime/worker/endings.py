"""From the end of a handler to its outcome: answers, errors, and being stopped."""

from __future__ import annotations

import traceback
from asyncio import CancelledError
from collections.abc import Mapping

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
from headway.core.errors import (
    HandlerCancelled,
    HandlerError,
    HandlerTimeout,
    HeadwayError,
    InvalidValue,
    PayloadTooLarge,
)
from headway.core.gates.spec import GateUse
from headway.core.job import MAX_ERROR
from headway.runtime.answers import Dead, Next, Retry, Snooze, Unfit
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.kind_options import Gates
from headway.runtime.records import encode


class HandlerCrashed(HandlerError):
    """A handler failed in its own process, or took the process with it.

    Attributes:
        text: the error for the record.
        died: whether the process ended.
    """

    code = "handler_crashed"

    def __init__(self, text: str, *, died: bool = False) -> None:
        super().__init__(text.partition("\n")[0])
        self.text = text
        self.died = died


def answered(job: Job, answer: object, kinds: Mapping[str, Kind]) -> Outcome | None:
    """What a handler's return means.

    Args:
        kinds: the kinds of the app, for the gates of another stage.

    Returns:
        The outcome; None if the run is not live any more and must write nothing.
    """
    if job.stop == "lost":
        return None
    if isinstance(answer, Retry | Dead):
        return raised(job, answer, kinds)
    return _said(job, answer, kinds)


def raised(job: Job, error: BaseException, kinds: Mapping[str, Kind]) -> Outcome | None:
    """What a handler's exception means.

    Args:
        error: what the handler raised, or what stopped it.
        kinds: as for `answered`.

    Returns:
        The outcome; None if the run is not live any more and must write nothing.
    """
    stopped = isinstance(error, CancelledError | HandlerCancelled) or (
        isinstance(error, HandlerCrashed) and error.died
    )
    match job.stop:
        case "lost":
            return None
        case "cancel" if stopped and not job.handed:
            return Died(job.id, job.run, reason="cancelled", error="stopped, as it was cancelled")
        case "stop" if stopped and not job.handed:
            return Released(job.id, job.run, reason="its worker stopped")
        case "timeout" if not isinstance(error, Retry | Dead):
            return _failed(job, timed_out(job, error), kinds)
        case _:
            return _failed(job, error, kinds)


def timed_out(job: Job, cause: BaseException) -> HandlerTimeout:
    """The error of a handler that ran longer than its kind allows."""
    message = f"the handler of {job.kind!r} ran longer than its timeout"
    error = HandlerTimeout(message, hint=f"{job.claimed.policy.timeout_ms} ms")
    error.__cause__ = cause
    return error


def describe(error: BaseException) -> str:
    """An error for the record: its last line first, then where it came from.

    Returns:
        At most as many characters as are kept.
    """
    if isinstance(error, HandlerCrashed):
        return error.text[:MAX_ERROR]
    code = f"{error.code}: " if isinstance(error, HeadwayError) else ""
    first = f"{code}{type(error).__name__}: {error}"[: MAX_ERROR // 2]
    lines = traceback.format_exception(error, limit=20)
    text = f"{first}\n{''.join(lines)}"
    if len(text) > MAX_ERROR:
        # Both ends of a long trace matter: the cause stands first, the raise last.
        half = MAX_ERROR // 2
        text = f"{text[: half - 3]}\n…\n{text[-half:]}"
    return text.encode("utf-8", "replace").decode()


def _said(job: Job, answer: object, kinds: Mapping[str, Kind]) -> Outcome:
    match answer:
        case Snooze():
            _, close = job.take_follow()
            moment = (answer.after_ms, answer.until_at)
            return Snoozed(job.id, job.run, (), close, *moment, answer.reason)
        case Next():
            return _next_stage(job, answer, kinds)
        case _ if job.handed:
            return Returned(job.id, job.run, *job.take_follow())
        case Unfit():
            return FoundUnfit(job.id, job.run, *job.take_follow(), reason=answer.reason)
        case _:
            return _succeeded(job, answer)


def _failed(job: Job, error: BaseException, kinds: Mapping[str, Kind]) -> Outcome:
    match error:
        case Retry():
            return _tried_again(job, error, kinds)
        case Dead():
            return Died(job.id, job.run, *job.take_follow(), reason=error.reason)
        case _ if job.handed:
            return Returned(job.id, job.run, *job.take_follow(), error=describe(error))
        case _:
            _, close = job.take_follow()
            return Failed(job.id, job.run, close=close, error=describe(error))


def _tried_again(job: Job, error: Retry, kinds: Mapping[str, Kind]) -> Outcome:
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
        error=error.reason,
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
    try:
        result = None if answer is None else encode("result", answer)
    except (InvalidValue, PayloadTooLarge) as error:
        # The work is done: to try again would do it twice.
        return Died(job.id, job.run, *job.take_follow(), reason="unusable result", error=str(error))
    return Succeeded(job.id, job.run, *job.take_follow(), result=result)


def _next_stage(job: Job, answer: Next, kinds: Mapping[str, Kind]) -> Outcome:
    try:
        gates = _gates(job, answer.stage, answer.gates, kinds)
    except HeadwayError as error:
        return Failed(job.id, job.run, error=describe(error))
    then, close = job.take_follow()
    return NextStage(job.id, job.run, then, close, stage=answer.stage, gates=gates)
