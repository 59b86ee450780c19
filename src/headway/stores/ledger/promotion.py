"""Promotion: scheduled jobs that are due become waiting."""

from __future__ import annotations

from headway.core.job import MAX_BATCH
from headway.core.state import State
from headway.stores.ledger.overlap import decide_fires
from headway.stores.ledger.rows import DueRow
from headway.stores.ledger.step import Step


def promote(step: Step, lane: str) -> int:
    """Promote the due jobs of a lane, at most 1000.

    Args:
        step: the step; fires that are folded end in it.

    Returns:
        How many became waiting.
    """
    ledger = step.ledger
    due = ledger.jobs.due(lane, MAX_BATCH)
    if not due:
        return 0
    seqs = [row.seq for row in due if row.entry is None]
    fires: dict[str, list[DueRow]] = {}
    for row in due:
        if row.entry is not None:
            fires.setdefault(row.entry, []).append(row)
    for entry, rows in fires.items():
        seqs += decide_fires(step, entry, rows)
    if seqs:
        ledger.jobs.promote(seqs)
        ledger.counts.move(lane, State.SCHEDULED, State.WAITING, len(seqs))
    if len(due) == MAX_BATCH:
        step.wake(lane)
    return len(seqs)
