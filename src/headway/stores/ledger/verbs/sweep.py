"""Sweep: bounded work caused only by the passing of time; any number of sweeps may run at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from headway.contract.claims import SweepReply
from headway.core.cascade import Answer
from headway.core.gates.spec import implicit_gates
from headway.core.job import TRAIL_KEPT_MS
from headway.core.state import State
from headway.stores.ledger.attempts import ask_provider, end_turn, fail, take_from
from headway.stores.ledger.feeding import run_timers
from headway.stores.ledger.gate_cache import extend_short
from headway.stores.ledger.ledger import Ledger, ReadAhead
from headway.stores.ledger.promotion import promote
from headway.stores.ledger.rows import HeldRow, JobRow, WorkerRow
from headway.stores.ledger.step import Step

LANES = 16
"""Most lanes in which one sweep promotes jobs."""
WORKER_KEPT_MS = 3_600_000
"""How long a worker whose lease has ended is still listed."""


def sweep(ledger: Ledger, n: int, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
    """See `Store.sweep`."""
    step = Step(ledger)
    workers, lost, held = _lapse_workers(step, n)
    expired = expire(step, n)
    # Lapsed workers come before deadlines: a job in doubt gets more time.
    deadlines = _meet_deadlines(step, n) if held < n else 0
    # Write what has ended before feeding and removing.
    step.flush()
    promoted = _promote_due(step)
    timers, fed = run_timers(step.cache, n)
    extend_short(step.cache, n)
    step.flush()
    all_workers = ledger.workers.all()
    removed, events = _remove_old(ledger, n, all_workers)
    lines = _remove_old_lines(ledger, n, ledger.now - keep_trail_ms)
    leases = [one.lease_until for one in all_workers if not one.lapsed]
    return SweepReply(
        lost=lost,
        deadlines=deadlines,
        expired=expired,
        promoted=promoted,
        fed=fed,
        dead=tuple(step.dead),
        removed=removed + lines,
        next_at=_next_at(ledger, leases),
        # A duty that reached its limit may have left some work.
        again=n in {workers, held, expired, deadlines, timers, removed, events, lines},
        workers=len(leases),
    )


def expire(step: Step, limit: int) -> int:
    """End queued jobs past their `expires_at`, and return how many ended."""
    ids = step.ledger.jobs.expired(limit)
    if not ids:
        return 0
    step.load(ids)
    for job in ids:
        step.end(step.rows[job], State.DEAD, "", reason="expired")
    return len(ids)


def _promote_due(step: Step) -> int:
    """Promote due jobs of some lanes, and return how many became waiting.

    A waiting process claims when the next job of its lane is due. If jobs are left for a sweep, no
    process waits, or the clock was set forward and the waits have become too long.
    """
    lanes = step.ledger.jobs.lanes_due(LANES)
    if not lanes:
        return 0
    promoted = promote(step, lanes)
    for lane in lanes:
        if lane in promoted:
            step.wake(lane)
    return sum(promoted.get(lane, 0) for lane in lanes)


def _lapse_workers(step: Step, n: int) -> tuple[int, int, int]:
    """Take up to n jobs from workers whose lease has ended.

    Returns:
        The numbers of such workers (at most n), of runs that they lost, and of jobs taken.
    """
    ledger = step.ledger
    workers = ledger.workers.lapsed(n)
    if not workers:
        return 0, 0, 0
    ledger.read_ahead(ReadAhead(workers=[worker.id for worker in workers]))
    taken: list[tuple[WorkerRow, list[HeldRow], bool]] = []
    held = 0
    for worker in workers:
        if held == n:
            break
        jobs = ledger.jobs.held_by(worker.id, n - held)
        taken.append((worker, jobs, len(jobs) < n - held))
        held += len(jobs)
    step.load(one.id for _, jobs, _ in taken for one in jobs)
    lost = sum(take_from(step, worker, jobs, whole=whole) for worker, jobs, whole in taken)
    return len(workers), lost, held


def _meet_deadlines(step: Step, n: int) -> int:
    ids = step.ledger.jobs.deadlines(n)
    step.load(ids)
    gates: list[str] = []
    for job in ids:
        row = step.rows[job]
        asker = step.ledger.jobs.policy(row.policy).reconcile
        if asker is not None:
            for name in implicit_gates(row.lane, row.tenant, asker):
                gates.append(name)  # noqa: PERF402  (as it is translated)
    step.cache.prefetch(gates)
    for job in ids:
        row = step.rows[job]
        # Its worker's lapse in this same sweep may have extended its deadline.
        if row.deadline_at is not None and row.deadline_at <= step.ledger.now:
            meet_deadline(step, row)
    return len(ids)


def meet_deadline(step: Step, row: JobRow) -> None:
    """Apply an awaiting job's deadline: ask the provider first, then follow the policy."""
    policy = step.ledger.jobs.policy(row.policy)
    asker = policy.reconcile
    if asker is not None and step.cache.is_paused(row.lane, row.tenant, asker):
        # The reconcile job cannot start now. The work may go on outside, so its permits stay taken.
        row.deadline_at = step.ledger.now + policy.reconcile_within_ms
        row.reconciles = -abs(row.reconciles)
        step.changed(row)
        return
    if row.reconciles <= 0 and ask_provider(step, row):
        return
    if row.cancel_requested:
        step.end(row, State.CANCELLED, "deadline", reason="cancelled")
    elif policy.cascade:
        end_turn(step, row, Answer.TIMEOUT, "no answer in time")
    elif policy.on_deadline == "retry":
        fail(step, row, "deadline", "no signal came in time", reason="deadline")
    else:
        step.end(row, State.DEAD, "deadline", reason="deadline", error="no signal came in time")


def _remove_old(ledger: Ledger, n: int, workers: Iterable[WorkerRow]) -> tuple[int, int]:
    """Remove jobs, events and workers after their retention; return how many jobs and events."""
    ids = ledger.jobs.purgeable(n)
    for lane, state in ledger.jobs.remove(ids):
        ledger.counts.move(lane, state, None)
    stale = ledger.signals.stale(n)
    if stale:
        ledger.signals.drop(stale)
    before = ledger.now - WORKER_KEPT_MS
    gone = [one.id for one in workers if one.lapsed and one.seen_at < before]
    if gone:
        ledger.workers.remove(gone)
    return len(ids), len(stale)


def _remove_old_lines(ledger: Ledger, n: int, before_at: int) -> int:
    trail = ledger.trail
    if not any(line.at < before_at for line in trail.since(0, 1)):
        return 0
    # The newest line always stays, so that its number is not assigned again.
    lines = trail.since(0, n + 1)[:-1]
    old = list(takewhile(lambda line: line.at < before_at, lines))
    if old:
        trail.remove(old)
    return len(old)


def _next_at(ledger: Ledger, leases: Sequence[int]) -> int | None:
    jobs = ledger.jobs
    moments = (
        *leases,
        jobs.next_deadline(),
        jobs.next_expiry(),
        ledger.gates.next_timer(),
    )
    return min((at for at in moments if at is not None), default=None)
