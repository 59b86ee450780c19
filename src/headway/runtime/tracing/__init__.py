"""Traces: each job is one trace, from its enqueue through its claims to its end.

This module loads no tracing library, so that code that enqueues can import it in any case.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

CAUSES: ContextVar[Mapping[str, str]] = ContextVar("causes")
"""By job id: W3C traceparent of the span that caused a job, if it is not the caller's."""


@contextmanager
def caused_by(causes: Mapping[str, str]) -> Generator[None]:
    """Link jobs that are created in this block with spans of other processes.

    Args:
        causes: W3C traceparent that each job came with, by job id.
    """
    token = CAUSES.set(causes)
    try:
        yield
    finally:
        CAUSES.reset(token)
