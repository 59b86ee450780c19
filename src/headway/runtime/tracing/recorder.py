"""The recorder: creates the spans of jobs' traces."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from hashlib import blake2b
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from headway.contract.claims import Claimed, ClaimReply, ClaimRequest
from headway.contract.outcomes import (
    Died,
    Failed,
    FoundUnfit,
    GaveBack,
    HandedOver,
    KnownAs,
    NextStage,
    Outcome,
    Released,
    Returned,
    SettleRequest,
    Snoozed,
    Succeeded,
    Verdict,
)
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import Sent
from headway.core.job import NewJob
from headway.runtime.job import Job
from headway.runtime.timing import REAL
from headway.runtime.tracing import CAUSES

Attributes = dict[str, AttributeValue]

OUTCOME_NAMES: dict[type[Outcome], str] = {
    Succeeded: "succeeded",
    Failed: "failed",
    Died: "dead",
    Snoozed: "snoozed",
    NextStage: "next_stage",
    Released: "released",
    HandedOver: "handed_over",
    KnownAs: "known_as",
    Returned: "returned",
    GaveBack: "gave_back",
    FoundUnfit: "unfit",
}


class _Operation(StrEnum):
    """The operation that a span records."""

    ENQUEUE = "enqueue"
    CLAIM = "claim"
    RUN = "run"
    SETTLE = "settle"
    SIGNAL = "signal"


_TYPES = {
    _Operation.ENQUEUE: "send",
    _Operation.CLAIM: "receive",
    _Operation.RUN: "process",
    _Operation.SETTLE: "settle",
}


def operation_attributes(operation: _Operation, job: str) -> Attributes:
    """Return the attributes of every span."""
    attributes: Attributes = {
        "messaging.system": "headway",
        "messaging.operation.name": operation.value,
        "messaging.message.id": job,
    }
    if operation in _TYPES:
        attributes["messaging.operation.type"] = _TYPES[operation]
    return attributes


def enqueue_attributes(job: NewJob, made: str) -> Attributes:
    """Return the attributes of an enqueue's span.

    Args:
        made: id of the job in the store; differs from the job's own if it is a duplicate.
    """
    attributes = operation_attributes(_Operation.ENQUEUE, made) | {
        "messaging.destination.name": job.lane,
        "messaging.message.body.size": len(job.args),
        "headway.kind": job.kind,
        "headway.priority": job.priority,
    }
    if job.tenant:
        attributes["headway.tenant"] = job.tenant
    return attributes


def run_attributes(operation: _Operation, claimed: Claimed, worker: str) -> Attributes:
    """Return the attributes of a claim's or run's span."""
    attributes = operation_attributes(operation, claimed.id) | {
        "messaging.destination.name": claimed.lane,
        "messaging.message.body.size": len(claimed.args),
        "headway.kind": claimed.kind,
        "headway.run": claimed.run,
        "headway.attempt": claimed.attempt,
        "headway.gated": claimed.gated,
    }
    if worker:
        attributes["messaging.client.id"] = worker
    if claimed.tenant:
        attributes["headway.tenant"] = claimed.tenant
    if claimed.stage:
        attributes["headway.stage"] = claimed.stage
    return attributes


def trace_id(job: str) -> int:
    """Return the trace id of a job: the 128 bits of the job's id."""
    return UUID(job).int


def enqueue_span(job: str) -> int:
    """Return the id of the enqueue's span, the root of a job's trace."""
    return _span_id(job)


def claim_span(job: str, run: int) -> int:
    """Return the id of the claim's span, the parent of a run's spans."""
    return _span_id(f"{job}:{run}")


def span_context(job: str, span: int, *, sampled: bool) -> SpanContext:
    """Return the context of a span in a job's trace that another process may have recorded."""
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return SpanContext(trace_id(job), span, is_remote=True, trace_flags=flags)


def _span_id(text: str) -> int:
    # Zero is not a valid id.
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) or 1


class GivenIds(IdGenerator):
    """Assigns chosen ids to spans within `given`, and leaves all others to another generator."""

    def __init__(self, others: IdGenerator) -> None:
        self._others = others
        self._given = _Given()

    @contextmanager
    def given(self, job: str, span: int) -> Generator[None]:
        """Assign these ids to spans that this thread starts in the block.

        Args:
            job: id of the job, from which the trace id is derived.
        """
        self._given.ids = (trace_id(job), span)
        try:
            yield
        finally:
            self._given.ids = None

    def generate_trace_id(self) -> int:
        """Return the next trace id."""
        ids = self._given.ids
        return self._others.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        """Return the next span id."""
        ids = self._given.ids
        return self._others.generate_span_id() if ids is None else ids[1]

    def is_trace_id_random(self) -> bool:
        """Return whether trace ids are random in the bits that samplers read; given ids are not."""
        return self._given.ids is None and self._others.is_trace_id_random()


class _Given(threading.local):
    ids: tuple[int, int] | None = None


MOST_LINKS = 100
"""Maximum number of links from the caller's span to the jobs that one enqueue created."""


class Recorder:
    """Creates the spans of jobs' traces.

    The root of a job's trace is its enqueue. Its children are the claims, and each claim's children
    are its run and the outcomes it settled. The trace id and the ids of enqueue and claim spans are
    derived from the job and its run, so that processes need not exchange them.
    """

    def __init__(self, tracer: Tracer) -> None:
        """Create a recorder.

        Args:
            tracer: tracer of the SDK. With any other, span ids cannot be chosen: spans are in the
                right trace, but their parents are not recorded spans.
        """
        self._tracer = tracer
        self._ids: GivenIds | None = None
        self._sampler = None
        if isinstance(tracer, SdkTracer):
            given = tracer.id_generator
            self._ids = given if isinstance(given, GivenIds) else GivenIds(given)
            tracer.id_generator = self._ids
            self._sampler = tracer.sampler

    def enqueued(self, jobs: Sequence[NewJob], replies: Sequence[Sent], started_ns: int) -> None:
        """Start the trace of each job that was created, linked with the span that caused it.

        Args:
            started_ns: start time of the enqueue, in ns since 1970.
        """
        caller, causes = get_current_span(), CAUSES.get({})
        for job, reply in zip(jobs, replies, strict=True):
            cause = _remote(causes[job.id]) if job.id in causes else caller
            span = self._made(job, reply, cause, started_ns)
            span.end()
            if caller.is_recording() and len(jobs) <= MOST_LINKS:
                caller.add_link(span.get_span_context())

    def claimed(self, request: ClaimRequest, reply: ClaimReply, started_ns: int) -> None:
        """Record a claim's span for each of its runs."""
        for claimed in reply.jobs:
            attributes = run_attributes(_Operation.CLAIM, claimed, request.worker)
            attributes["headway.waited_ms"] = max(0, reply.now - claimed.due_at)
            with self._with_id(claimed.id, claim_span(claimed.id, claimed.run)):
                span = self._tracer.start_span(
                    f"{_Operation.CLAIM} {claimed.lane}",
                    self._child_of(claimed.id, enqueue_span(claimed.id)),
                    SpanKind.CLIENT,
                    attributes,
                    start_time=started_ns,
                )
            span.end()

    def running(self, job: Job) -> Span:
        """Start the span of a handler's call; the caller must end it when the handler returns."""
        return self._tracer.start_span(
            f"{_Operation.RUN} {job.lane}",
            self._child_of(job.id, claim_span(job.id, job.run)),
            SpanKind.CONSUMER,
            run_attributes(_Operation.RUN, job.claimed, ""),
        )

    def settled(self, request: SettleRequest, verdicts: Sequence[Verdict], started_ns: int) -> None:
        """Record the verdict on each outcome, and start the traces of its follow-up jobs."""
        for outcome, verdict in zip(request.outcomes, verdicts, strict=True):
            if verdict is Verdict.ALREADY:
                continue  # recorded when it was written
            span = self._tracer.start_span(
                str(_Operation.SETTLE),
                self._child_of(outcome.job, claim_span(outcome.job, outcome.run)),
                SpanKind.CLIENT,
                _outcome_attributes(outcome, verdict, request.worker),
                start_time=started_ns,
            )
            _record_failure(span, outcome, verdict)
            if verdict is not Verdict.LOST:
                for job in outcome.then:
                    follower = self._made(job, Sent(job.id, created=True), span, started_ns)
                    follower.end()
            span.end()

    def signalled(self, signal: Signal, reply: SignalReply, started_ns: int) -> None:
        """Record a signal, unless its job is not known yet."""
        if reply.job is None:
            return
        attributes = operation_attributes(_Operation.SIGNAL, reply.job) | {
            "headway.signal": signal.kind.value,
            "headway.answer": reply.answer.value,
        }
        if reply.state is not None:
            attributes["headway.state"] = reply.state
        self._tracer.start_span(
            str(_Operation.SIGNAL),
            self._child_of(reply.job, enqueue_span(reply.job)),
            SpanKind.CONSUMER,
            attributes,
            _links(get_current_span()),
            started_ns,
        ).end()

    def _made(self, job: NewJob, reply: Sent, cause: Span, started_ns: int) -> Span:
        attributes = enqueue_attributes(job, reply.id)
        attributes["headway.created"] = reply.created
        above = self._child_of(reply.id, enqueue_span(reply.id))
        if reply.created and self._ids is not None:
            above = Context()  # a root, whose ids can be chosen
        with self._with_id(reply.id, enqueue_span(reply.id)) if reply.created else nullcontext():
            return self._tracer.start_span(
                f"{_Operation.ENQUEUE} {job.lane}",
                above,
                SpanKind.PRODUCER,
                attributes,
                _links(cause),
                started_ns,
            )

    def _with_id(self, job: str, span: int) -> AbstractContextManager[None]:
        return nullcontext() if self._ids is None else self._ids.given(job, span)

    def _child_of(self, job: str, span: int) -> Context:
        above = NonRecordingSpan(span_context(job, span, sampled=self._samples(job)))
        return set_span_in_context(above, Context())

    def _samples(self, job: str) -> bool:
        """Return whether the trace is recorded, as the same sampler decided at its root."""
        if self._sampler is None:
            return True
        return self._sampler.should_sample(Context(), trace_id(job), "").decision.is_sampled()


def now_ns() -> int:
    """Return the current time for spans, in ns since 1970."""
    return REAL.wall_ns()


def _remote(traceparent: str) -> Span:
    """Return a span of another process; an invalid span if the traceparent is not valid."""
    carrier = {"traceparent": traceparent}
    return get_current_span(TraceContextTextMapPropagator().extract(carrier, Context()))


def _links(cause: Span) -> list[Link]:
    context = cause.get_span_context()
    return [Link(context)] if context.is_valid else []


def _outcome_attributes(outcome: Outcome, verdict: Verdict, worker: str) -> Attributes:
    return operation_attributes(_Operation.SETTLE, outcome.job) | {
        "messaging.client.id": worker,
        "headway.run": outcome.run,
        "headway.outcome": OUTCOME_NAMES[type(outcome)],
        "headway.verdict": verdict.value,
    }


def _record_failure(span: Span, outcome: Outcome, verdict: Verdict) -> None:
    match outcome:
        case _ if verdict is Verdict.LOST:
            text = "the run was no longer live"
        case Failed():
            text = outcome.error.partition("\n")[0] or "failed"
        case Died():
            text = outcome.reason
        case FoundUnfit():
            text = outcome.reason or "unfit"
        case _:
            return
    span.set_status(Status(StatusCode.ERROR, text))
