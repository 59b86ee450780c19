"""Lapse: when a lease has ended, running jobs are retried, and handed-over ones are in doubt."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.state import State
from headway.stores.ledger.followups import reconcile_job
from headway.stores.ledger.rows import HeldRow, JobRow, WorkerRow
from headway.stores.ledger.step import Step


def lapse(step: Step, worker: WorkerRow, most: int | None = None) -> tuple[int, int]:
    """Take all jobs, or the first ones, from a worker whose lease has ended.

    The rest is fenced by the end of its lease. The worker is marked as lapsed when nothing is left:
    until then each sweep finds it, and its own beat or claim takes the rest first.

    Args:
        step: the step; this worker's runs are flushed.
        worker: its row; marked and saved here.
        most: how many jobs are taken at most, from 1; None for all.

    Returns:
        How many runs it lost, and how many jobs were taken.
    """
    held = step.ledger.jobs.held_by(worker.id, most)
    step.load(one.id for one in held)
    whole = most is None or len(held) < most
    return take_from(step, worker, held, whole=whole), len(held)


def take_from(step: Step, worker: WorkerRow, held: Sequence[HeldRow], *, whole: bool) -> int:
    """Take jobs from a worker whose lease has ended.

    Args:
        step: the step, which has loaded the jobs.
        worker: its row; marked and saved here.
        held: the jobs that it holds, or the first of them.
        whole: whether `held` is all that it holds.

    Returns:
        How many runs it lost.
    """
    lost = 0
    for one in held:
        row = step.rows[one.id]
        if row.state is State.RUNNING:
            fail_lost_run(step, row)
            lost += 1
        elif row.state is State.AWAITING:
            mark_in_doubt(step, row)
    worker.lapsed = whole
    # Even if only some were taken: a beat that read the row before must not extend the lease.
    step.ledger.workers.save(worker)
    step.ledger.counts.happened("lost", lost)
    return lost


def fail_lost_run(step: Step, row: JobRow) -> None:
    """Fail the attempt of a running job whose worker is gone."""
    fail(step, row, "lost", "the worker's lease ended", reason="lease lost")


def mark_in_doubt(step: Step, row: JobRow) -> None:
    """Mark an awaiting job whose worker died before its handler returned."""
    row.last_worker, row.worker = row.worker or "", None
    step.changed(row)
    if row.accepted:
        # A candidate has accepted it, so nothing is in doubt.
        return
    row.in_doubt = True
    ask_provider(step, row)


def ask_provider(step: Step, row: JobRow) -> bool:
    """Start the kind's reconcile job, and extend the deadline for it.

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
    """End a failed attempt: schedule the next by the job's policy, or make the job dead.

    A retry without a delay keeps the job's due time, and so its place before later jobs.
    """
    policy = step.ledger.jobs.policy(row.policy)
    if policy.retry.exhausted(row.attempt):
        return step.end(row, State.DEAD, outcome, reason=reason, error=error)
    delay = policy.retry.delay_ms(row.attempt, f"{row.id}:{row.run}")
    step.ledger.counts.happened("retried")
    row.reason = reason
    due_at = step.ledger.now + delay if delay else None
    return step.requeue(row, outcome, due_at=due_at, repeat=False, error=error)
