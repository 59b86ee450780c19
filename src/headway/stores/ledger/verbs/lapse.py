"""Lapse: a lease has ended; what ran is tried again, what was handed over is in doubt."""

from __future__ import annotations

from headway.core.state import State
from headway.stores.ledger.followups import reconcile_job
from headway.stores.ledger.rows import JobRow, WorkerRow
from headway.stores.ledger.step import Step


def lapse(step: Step, worker: WorkerRow, most: int | None = None) -> tuple[int, int]:
    """Takes everything from a worker whose lease has ended, or its first jobs.

    What is left to it is fenced by the end of its lease. It is marked when nothing is left, so that
    until then each sweep finds it, and a beat or claim of its own takes the rest from it first.

    Args:
        step: the step; flushed, as far as this worker's runs go.
        worker: its row; marked and saved here.
        most: how many jobs are taken at most, from 1; None for all.

    Returns:
        How many runs it lost, and how many jobs were taken in all.
    """
    held = step.ledger.jobs.held_by(worker.id, most)
    step.load(one.id for one in held)
    lost = 0
    for one in held:
        row = step.rows[one.id]
        if row.state is State.RUNNING:
            lose(step, row)
            lost += 1
        elif row.state is State.AWAITING:
            doubt(step, row)
    worker.lapsed = most is None or len(held) < most
    # Also if only some were taken: a beat that read the row before must not extend the lease.
    step.ledger.workers.save(worker)
    step.ledger.counts.happened("lost", lost)
    return lost, len(held)


def lose(step: Step, row: JobRow) -> None:
    """A running job whose worker is gone: the attempt is used, the next follows by its policy."""
    fail(step, row, "lost", "the worker's lease ended", reason="lease lost")


def doubt(step: Step, row: JobRow) -> None:
    """An awaiting job whose worker died before its handler returned."""
    row.last_worker, row.worker = row.worker or "", None
    step.changed(row)
    if row.accepted:
        # The answer has come: there is nothing to doubt.
        return
    row.in_doubt = True
    ask_provider(step, row)


def ask_provider(step: Step, row: JobRow) -> bool:
    """Starts the kind's reconcile job, and gives it time before the deadline decides.

    Returns:
        Whether the kind has one.
    """
    policy = step.ledger.jobs.policy(row.policy)
    if policy.reconcile is None:
        return False
    row.reconciles = abs(row.reconciles) + 1
    row.deadline_at = max(row.deadline_at or 0, step.ledger.now + policy.reconcile_within_ms)
    step.changed(row)
    step.follow.append(reconcile_job(row, policy.reconcile))
    return True


def fail(step: Step, row: JobRow, outcome: str, error: str, *, reason: str = "failed") -> State:
    """An attempt failed: the next by the job's policy, or dead when they are used up."""
    policy = step.ledger.jobs.policy(row.policy)
    if policy.retry.exhausted(row.attempt):
        return step.end(row, State.DEAD, outcome, reason=reason, error=error)
    delay = policy.retry.delay_ms(row.attempt, f"{row.id}:{row.run}")
    step.ledger.counts.happened("retried")
    row.reason = reason
    return step.requeue(row, outcome, due_at=step.ledger.now + delay, repeat=False, error=error)
