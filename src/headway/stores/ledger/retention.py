"""Retention: how long a final job is kept."""

from __future__ import annotations

from headway.core.job import JobPolicy


def kept_for(policy: JobPolicy, *, keyed: bool) -> int:
    """How long a job is kept after its end, ms.

    Its key must answer for `key_for_ms`, and answers with the job; so the job is kept as long.
    """
    return max(policy.keep_ms, policy.key_for_ms) if keyed else policy.keep_ms
