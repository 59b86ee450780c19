"""The turns of a cascade: the cursor moves by a decline, a timeout or a candidate found unfit."""

from __future__ import annotations

from headway.core.cascade import Answer
from headway.core.state import State
from headway.stores.ledger.followups import accepted_job
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
    """The candidate whose turn it is takes the job, which ends, or goes on awaiting its end.

    Args:
        step: the step.
        row: awaiting.
        body: what the candidate said, JSON; kept as the result.

    Returns:
        The job's state now.
    """
    candidate = row.candidate
    reason = f"accepted by {candidate}" if candidate else ""
    if row.cascade is not None:
        row.cascade = row.cascade.end(Answer.ACCEPTED, step.ledger.now)
    follow = step.ledger.jobs.policy(row.policy).on_accepted
    if follow is None or row.cascade is None or row.cancel_requested:
        return step.end(row, State.SUCCEEDED, "accepted", reason=reason, result=body)
    row.reason, row.result = reason, body
    # Nothing but a word of somebody ends it now: neither time, nor its worker's death.
    row.deadline_at, row.in_doubt = None, False
    step.changed(row)
    step.follow.append(accepted_job(row, follow))
    return row.state
