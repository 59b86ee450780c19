"""The turns of a cascade: the cursor moves by a decline, a timeout or a candidate found unfit."""

from __future__ import annotations

from headway.core.cascade import Answer
from headway.core.state import State
from headway.stores.ledger.rows import JobRow
from headway.stores.ledger.step import Step


def end_turn(step: Step, row: JobRow, answer: Answer, reason: str) -> State:
    """Ends the offer to a candidate; the next turn begins, or the cascade is exhausted.

    Args:
        step: the step.
        row: running or awaiting.
        answer: not ACCEPTED.
        reason: for the record.

    Returns:
        The job's state now.
    """
    if row.cascade is None:
        # Not a cascade: there is nobody else to ask.
        return step.end(row, State.DEAD, str(answer), reason=reason or str(answer))
    row.cascade = row.cascade.end(answer, step.ledger.now, reason)
    if row.cascade.exhausted:
        return step.end(row, State.DEAD, str(answer), reason="exhausted")
    # The next candidate's turn is a new run of the same attempt.
    return step.requeue(row, str(answer), due_at=None, repeat=True)


def accept(step: Step, row: JobRow, body: bytes | None) -> State:
    """The candidate whose turn it is takes the job."""
    candidate = row.candidate
    if row.cascade is not None:
        row.cascade = row.cascade.end(Answer.ACCEPTED, step.ledger.now)
    return step.end(
        row,
        State.SUCCEEDED,
        "accepted",
        reason=f"accepted by {candidate}" if candidate else "",
        result=body,
    )
