"""Handlers in their traces: what a handler records stands below its run."""

from __future__ import annotations

from opentelemetry.trace import Span, Status, StatusCode, use_span

from headway.runtime.answers import Dead, Retry
from headway.runtime.job import Job
from headway.runtime.tracing.recorder import Recorder
from headway.runtime.worker.plans import CallNext, Middleware


def traced_handlers(recorder: Recorder) -> Middleware:
    """Middleware that makes a span of each call; it is the current one within the handler."""

    async def traced(job: Job, call_next: CallNext) -> object:
        span = recorder.running(job)
        with use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                return await call_next()
            except BaseException as error:
                _record_error(span, error, job)
                raise

    return traced


def _record_error(span: Span, error: BaseException, job: Job) -> None:
    if job.stop is not None:
        span.set_attribute("headway.stopped", job.stop)
    match error:
        case Retry() | Dead():
            # Raised by the handler on purpose: the stack trace adds nothing.
            text = error.reason or type(error).__name__
        case _:
            span.record_exception(error)
            text = f"{type(error).__name__}: {error}"
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, text))
