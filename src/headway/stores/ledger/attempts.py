"""What follows an attempt: another stage, the next candidate, a retry, or its worker's lapse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway.core.cascade import Answer
from headway.core.gates.spec import GateUse
from headway.core.state import QUEUED, State
from headway.stores.ledger.insert import accepted_job, check_turns, flow_of, reconcile_job
from headway.stores.ledger.rows import HeldRow, JobRow, WorkerRow
from headway.stores.ledger.step import Step


class Stage(NamedTuple):
    """A stage of a job.

    Attributes:
        name: empty if the kind has no stages.
        flow: the number of the flow in which the job waits for it.
    """

    name: str
    flow: int
    keyed: tuple[GateUse, ...]


def stage_of(
    step: Step,
    row: JobRow,
    name: str,
    gates: Sequence[GateUse],
    candidates: Sequence[str] | None = None,
) -> Stage:
    """Resolve a stage and its gates for a job.

    Args:
        candidates: those that a cascade gets with the stage; None to keep its own.

    Raises:
        UnknownGate: a gate is not declared; the step must be rolled back.
        InvalidValue: the gates cannot be used like this; the step must be rolled back.
    """
    flow, keyed = flow_of(step.cache, row.lane, row.tenant, row.kind, gates)
    if candidates is None and row.cascade is not None:
        # An operator's retry asks all of them again.
        candidates = row.cascade.reset().left
    check_turns(step.cache, row.kind, gates, candidates or ())
    return Stage(name, flow, keyed)


def another_stage(step: Step, row: JobRow, name: str, gates: Sequence[GateUse]) -> Stage | None:
    """Resolve a stage as `stage_of` does; return None for an empty name, the current stage."""
    return stage_of(step, row, name, gates) if name else None


def enter(step: Step, row: JobRow, stage: Stage | None) -> None:
    """Move a requeued job to a stage; leave a job that has ended unchanged.

    Args:
        row: must have left its former queue already.
        stage: None to stay at the current one.
    """
    if stage is None or row.state not in QUEUED:
        return
    row.stage, row.flow, row.keyed = stage
    step.changed(row)


def end_turn(step: Step, row: JobRow, answer: Answer, reason: str) -> State:
    """End the offer to a candidate; the next turn starts, or the cascade is exhausted."""
    if row.cascade is None:
        # Not a cascade: there is no other candidate.
        return step.end(row, State.DEAD, str(answer), reason=reason or str(answer))
    row.cascade = row.cascade.end(answer, step.ledger.now, reason)
    # The next candidate's turn is a new run of the same attempt.
    return step.requeue(row, str(answer), due_at=None, repeat=True)


def accept(step: Step, row: JobRow, body: bytes | None) -> State:
    """Accept the job for the candidate whose turn it is; the job ends, or awaits its end.

    Args:
        body: the candidate's reply, JSON; kept as the result.
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


def lapse(step: Step, worker: WorkerRow) -> None:
    """Take all jobs from a worker whose lease has ended; changes to its runs must be flushed."""
    held = step.ledger.jobs.held_by(worker.id)
    step.load(one.id for one in held)
    take_from(step, worker, held, whole=True)


def take_from(step: Step, worker: WorkerRow, held: Sequence[HeldRow], *, whole: bool) -> int:
    """Take jobs from a worker whose lease has ended.

    The end of the lease fences the remaining jobs. The worker is marked as lapsed when it has no
    job left: until then each sweep finds it, and its own beat or claim takes the rest first.

    Args:
        step: must have loaded the jobs.
        worker: marked and saved here.
        held: the jobs that the worker holds, or the first of them.
        whole: whether `held` is all that the worker holds.

    Returns:
        The number of runs that it lost.
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
    """Create the kind's reconcile job, if it has one, and extend the deadline for it.

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
