"""Expiry: a job that did not start before its `expires_at` becomes dead."""

from __future__ import annotations

from headway.core.state import State
from headway.stores.ledger.step import Step


def expire(step: Step, limit: int) -> int:
    """End queued jobs past their `expires_at`.

    Args:
        limit: the most jobs.

    Returns:
        How many ended.
    """
    ids = step.ledger.jobs.expired(limit)
    if not ids:
        return 0
    step.load(ids)
    for job in ids:
        step.end(step.rows[job], State.DEAD, "", reason="expired")
    return len(ids)
