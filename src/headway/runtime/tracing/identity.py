"""Which trace a job is: its own id. So nothing is stored, and every process knows it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from uuid import UUID

from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import SpanContext, TraceFlags


def trace_id(job: str) -> int:
    """The trace of a job: the 128 bits of its id.

    Args:
        job: a UUID in its canonical text.
    """
    return UUID(job).int


def enqueue_span(job: str) -> int:
    """The id of the span with which a job's trace begins."""
    return _span_id(job)


def claim_span(job: str, run: int) -> int:
    """The id of the span with which a run begins."""
    return _span_id(f"{job}:{run}")


def place(job: str, span: int, *, sampled: bool) -> SpanContext:
    """A span of a job's trace, as another process left it.

    Args:
        sampled: whether the trace is recorded.
    """
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return SpanContext(trace_id(job), span, is_remote=True, trace_flags=flags)


def _span_id(text: str) -> int:
    # An id of zeros is none.
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) or 1


class GivenIds(IdGenerator):
    """Gives the next span the ids that it must have, and any others as they were given before."""

    def __init__(self, others: IdGenerator) -> None:
        self._others = others
        self._given = _Given()

    @contextmanager
    def given(self, job: str, span: int) -> Generator[None]:
        """Spans that are started in this block by this thread have this id.

        Args:
            job: whose trace it is, if it has no parent.
        """
        self._given.ids = (trace_id(job), span)
        try:
            yield
        finally:
            self._given.ids = None

    def generate_trace_id(self) -> int:
        """The id of a trace."""
        ids = self._given.ids
        return self._others.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        """The id of a span."""
        ids = self._given.ids
        return self._others.generate_span_id() if ids is None else ids[1]

    def is_trace_id_random(self) -> bool:
        """Return whether the bits that samplers read are random; a caller may give an id."""
        return self._given.ids is None and self._others.is_trace_id_random()


class _Given(threading.local):
    ids: tuple[int, int] | None = None
