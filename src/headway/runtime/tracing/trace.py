"""Tracing an app: its store and its handlers report to a recorder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import metadata
from typing import cast

from opentelemetry.trace import (
    Span,
    Status,
    StatusCode,
    TracerProvider,
    get_tracer_provider,
    use_span,
)

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.extensions import InsertsWithin, Repairable, SendsAhead
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import Sent, Store
from headway.core.job import NewJob
from headway.runtime.app import App
from headway.runtime.handler_results import Dead, Retry
from headway.runtime.job import Job
from headway.runtime.tracing.recorder import Recorder, now_ns
from headway.runtime.worker.plans import CallNext, Middleware


def traced_store(store: Store, recorder: Recorder) -> Store:
    """Wrap a store to record its calls."""
    # Callers check a store's optional protocols by its attributes: the wrapper must not add any.
    kind = _TracedInserting if isinstance(store, InsertsWithin) else TracedStore
    return cast("Store", kind(store, recorder))


_OPERATIONS = frozenset(
    name for kind in (Store, Repairable, InsertsWithin) for name in vars(kind) if name[0] != "_"
)


class TracedStore:
    """Wraps a store, and traces its enqueues, claims, settlements and signals."""

    def __init__(self, inner: Store, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder
        # All other operations are the store's own.
        for name in _OPERATIONS.difference(dir(self)):
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        if isinstance(inner, SendsAhead):
            self.enqueue_ahead = partial(self._trace_enqueue, inner.enqueue_ahead)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        """Enqueue jobs, and trace each."""
        return await self._trace_enqueue(self._inner.enqueue, jobs)

    async def _trace_enqueue(
        self,
        enqueue: Callable[..., Awaitable[list[Sent]]],
        jobs: Sequence[NewJob],
        **sent: Callable[[], None],
    ) -> list[Sent]:
        started_ns = now_ns()
        replies = await enqueue(jobs, **sent)
        self._recorder.enqueued(jobs, replies, started_ns)
        return replies

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """Claim jobs, and trace each run."""
        started_ns = now_ns()
        reply = await self._inner.claim(request)
        self._recorder.claimed(request, reply, started_ns)
        return reply

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        """Settle outcomes, and trace each."""
        started_ns = now_ns()
        verdicts = await self._inner.settle(request)
        self._recorder.settled(request, verdicts, started_ns)
        return verdicts

    async def signal(self, signal: Signal) -> SignalReply:
        """Apply a signal, and trace it."""
        started_ns = now_ns()
        reply = await self._inner.signal(signal)
        self._recorder.signalled(signal, reply, started_ns)
        return reply


class _TracedInserting(TracedStore):
    """A traced store that can insert jobs within the caller's transaction."""

    def enqueue_within(self, connection: object, jobs: Sequence[NewJob]) -> list[Sent]:
        """Enqueue jobs, and trace each, even if the caller's transaction is rolled back later."""
        started_ns = now_ns()
        replies = cast("InsertsWithin", self._inner).enqueue_within(connection, jobs)
        self._recorder.enqueued(jobs, replies, started_ns)
        return replies

    async def enqueue_within_async(self, connection: object, jobs: Sequence[NewJob]) -> list[Sent]:
        """Enqueue and trace jobs as `enqueue_within`; the connection may be asynchronous."""
        started_ns = now_ns()
        inner = cast("InsertsWithin", self._inner)
        replies = await inner.enqueue_within_async(connection, jobs)
        self._recorder.enqueued(jobs, replies, started_ns)
        return replies


def traced_handlers(recorder: Recorder) -> Middleware:
    """Return middleware that records a span for each call; it is current within the handler."""

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


SCOPE = "headway"


def trace(app: App, tracer_provider: TracerProvider | None = None) -> None:
    """Trace the jobs that an app sends, its workers run, or signals are about.

    Call it once, before the app's store is used. An app that is not traced has no overhead.

    Args:
        tracer_provider: receives the spans; defaults to OpenTelemetry's global provider.

    Raises:
        InvalidValue: the app has already opened its store.
    """
    provider = tracer_provider or get_tracer_provider()
    recorder = Recorder(provider.get_tracer(SCOPE, metadata.version("headway")))
    app.observe(lambda store: traced_store(store, recorder), traced_handlers(recorder))
