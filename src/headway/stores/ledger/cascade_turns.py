"""The turns of a cascade: a decline, a timeout or an unfit candidate moves to the next one."""

from __future__ import annotations

from headway.core.cascade import Answer
from headway.core.state import State
from headway.stores.ledger.followups import accepted_job
from headway.stores.ledger.rows import JobRow
from headway.stores.ledger.step import Step


def end_turn(step: Step, row: JobRow, answer: Answer, reason: str) -> State:
    """End the offer to a candidate; the next turn begins, or the cascade is exhausted.

    Returns:
        The job's state now.
    """
    if row.cascade is None:
        # Not a cascade: there is no other candidate.
        return step.end(row, State.DEAD, str(answer), reason=reason or str(answer))
    row.cascade = row.cascade.end(answer, step.ledger.now, reason)
    if row.cascade.exhausted:
        return step.end(row, State.DEAD, str(answer), reason="exhausted")
    # The next candidate's turn is a new run of the same attempt.
    return step.requeue(row, str(answer), due_at=None, repeat=True)


def accept(step: Step, row: JobRow, body: bytes | None) -> State:
    """Accept the job for the candidate whose turn it is; it ends, or awaits its end.

    Args:
        body: the candidate's reply, JSON; kept as the result.

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
    # Only a signal or an operator ends it now: neither a deadline nor its worker's death.
    row.deadline_at, row.in_doubt = None, False
    step.changed(row)
    step.follow.append(accepted_job(row, follow))
    return row.state
