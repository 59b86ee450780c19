"""Retention: how long a final job is kept."""

from __future__ import annotations

from headway.core.job import JobPolicy


def kept_for(policy: JobPolicy, *, keyed: bool) -> int:
    """Return how long a job is kept after its end, ms; at least as long as its key refers to it."""
    return max(policy.keep_ms, policy.key_for_ms) if keyed else policy.keep_ms
