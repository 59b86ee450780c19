"""Traces: each job is one trace, from its enqueue through its claims to its end.

This module loads no tracing library: who enqueues need not know whether jobs are traced.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

CAUSES: ContextVar[Mapping[str, str]] = ContextVar("causes")
"""What made the jobs of an enqueue if not the caller's span: a W3C traceparent by job."""


@contextmanager
def caused_by(causes: Mapping[str, str]) -> Generator[None]:
    """Link the jobs that are made in this block with spans of other processes.

    Args:
        causes: the traceparent that came with a job, by the job's id.
    """
    token = CAUSES.set(causes)
    try:
        yield
    finally:
        CAUSES.reset(token)
