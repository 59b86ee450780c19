"""Sweep: what time alone brings about, bounded; any number of sweepers may run at once."""

from __future__ import annotations

from itertools import takewhile

from headway.contract.sweeps import SweepReply
from headway.core.cascade import Answer
from headway.core.job import TRAIL_KEPT_MS
from headway.core.state import State
from headway.stores.ledger.feeding import run_timers
from headway.stores.ledger.horizon import extend_short
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.promotion import promote
from headway.stores.ledger.rows import JobRow
from headway.stores.ledger.step import Step
from headway.stores.ledger.turns import end_turn
from headway.stores.ledger.verbs.expire import expire
from headway.stores.ledger.verbs.lapse import ask_provider, fail, lapse

LANES = 16
"""Lanes that one sweep promotes in."""
WORKER_KEPT_MS = 3_600_000
"""How long a worker that is gone is still listed."""


def sweep(ledger: Ledger, n: int, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
    """See `Store.sweep`."""
    step = Step(ledger)
    workers, lost, held = _lapse_workers(step, n)
    expired = expire(step, n)
    # A worker's end comes before the deadline of what it held: it may give that more time.
    late = _deadlines(step, n) if held < n else 0
    # What ended above must be written before anything is fed or forgotten.
    step.flush()
    promoted = sum(promote(step, lane) for lane in ledger.jobs.lanes_due(LANES))
    timers, fed = run_timers(step.book, n)
    extend_short(step.book, n)
    step.flush()
    removed, lines = _forget(ledger, n), _forget_trail(ledger, n, ledger.now - keep_trail_ms)
    return SweepReply(
        lost=lost,
        deadlines=late,
        expired=expired,
        promoted=promoted,
        fed=fed,
        dead=tuple(step.dead),
        removed=removed + lines,
        next_at=_next_at(ledger),
        again=n in {workers, held, expired, late, timers, removed, lines},
    )


def _lapse_workers(step: Step, n: int) -> tuple[int, int, int]:
    """Takes up to n jobs from workers whose lease has ended.

    Returns:
        How many such workers there are, at most n; the runs that they lost; the jobs taken in all.
    """
    workers = step.ledger.workers.lapsed(n)
    lost = held = 0
    for worker in workers:
        if held == n:
            break
        runs, jobs = lapse(step, worker, n - held)
        lost, held = lost + runs, held + jobs
    return len(workers), lost, held


def _deadlines(step: Step, n: int) -> int:
    ids = step.ledger.jobs.deadlines(n)
    step.load(ids)
    for job in ids:
        row = step.rows[job]
        # Whose worker's lease has ended in this same sweep has been given time already.
        if row.deadline_at is not None and row.deadline_at <= step.ledger.now:
            meet_deadline(step, row)
    return len(ids)


def meet_deadline(step: Step, row: JobRow) -> None:
    """An awaiting job's deadline has come: the provider is asked, then the policy decides."""
    policy = step.ledger.jobs.policy(row.policy)
    if row.cancel_requested:
        step.end(row, State.CANCELLED, "deadline", reason="cancelled")
    elif row.reconciles <= 0 and ask_provider(step, row):
        return
    elif policy.cascade:
        end_turn(step, row, Answer.TIMEOUT, "no answer in time")
    elif policy.on_deadline == "retry":
        fail(step, row, "deadline", "no signal came in time", reason="deadline")
    else:
        step.end(row, State.DEAD, "deadline", reason="deadline", error="no signal came in time")


def _forget(ledger: Ledger, n: int) -> int:
    ids = ledger.jobs.purgeable(n)
    if ids:
        for row in ledger.jobs.load(ids).values():
            ledger.counts.move(row.lane, row.state, None)
        ledger.jobs.remove(ids)
    stale = ledger.signals.stale(n)
    if stale:
        ledger.signals.drop(stale)
    before = ledger.now - WORKER_KEPT_MS
    gone = [one.id for one in ledger.workers.all() if one.lapsed and one.seen_at < before]
    if gone:
        ledger.workers.remove(gone)
    return len(ids)


def _forget_trail(ledger: Ledger, n: int, before_at: int) -> int:
    trail = ledger.trail
    if not any(line.at < before_at for line in trail.since(0, 1)):
        return 0
    # One more than may be removed: the newest line of all stays, and keeps its number from others.
    lines = trail.since(0, n + 1)[:-1]
    old = list(takewhile(lambda line: line.at < before_at, lines))
    if old:
        trail.remove(old)
    return len(old)


def _next_at(ledger: Ledger) -> int | None:
    jobs = ledger.jobs
    moments = (
        ledger.workers.next_lapse(),
        jobs.next_deadline(),
        jobs.next_expiry(),
        ledger.gates.next_timer(),
    )
    return min((at for at in moments if at is not None), default=None)
