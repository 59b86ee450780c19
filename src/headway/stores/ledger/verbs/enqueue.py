"""Enqueue, fire and restore: new jobs, fires of timetable entries, and jobs already in flight."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.definitions import FireReply, FireRequest
from headway.contract.store import InFlight, Sent
from headway.core.check import LATEST, read_reference
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateUse
from headway.core.job import MAX_BATCH, NewJob, fire_id
from headway.core.state import FINAL, HELD, QUEUED, State
from headway.stores.ledger.attempts import ask_provider, stage_of
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.ledger.gatekinds import RULES
from headway.stores.ledger.gaterows import PermitRow
from headway.stores.ledger.insert import insert_new
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.promotion import undecided_fires
from headway.stores.ledger.rows import EntryRow, JobRow
from headway.stores.ledger.step import Step
from headway.stores.ledger.verbs.signal import apply_kept


def enqueue(ledger: Ledger, jobs: Sequence[NewJob]) -> list[Sent]:
    """See `Store.enqueue`."""
    check_batch("enqueue", len(jobs))
    cache = GateCache(ledger)
    replies = insert_new(ledger, cache, jobs)
    cache.save()
    return replies


def check_batch(what: str, n: int) -> None:
    """Check the size of a batch.

    Raises:
        InvalidValue: it is too large for one atomic step.
    """
    if n > MAX_BATCH:
        message = f"{n} items are too many for one {what}"
        raise InvalidValue(message, hint=f"send at most {MAX_BATCH} at a time")


def fire(ledger: Ledger, request: FireRequest) -> FireReply:
    """See `Store.fire`."""
    check_batch("fire", len(request.moments))
    row = ledger.entries.load(request.entry)
    spec = row.spec if row is not None else None
    if row is None or spec is None or row.revision != request.revision or not spec.enabled:
        return FireReply(fired=(), current=False)
    fired: list[int] = []
    last = row.last_fired
    for moment in request.moments:
        if last is None or moment > last:
            fired.append(moment)
            last = moment
    if fired and row.revision > 1:
        fired = undecided_fires(ledger.jobs, row, fired)
    cache = GateCache(ledger)
    jobs = [_job_of_fire(row, spec.job, moment) for moment in fired]
    insert_new(ledger, cache, jobs, limited=False, derived=True)
    cache.save()
    row.last_fired = last
    row.ahead_until = max(row.ahead_until or 0, request.ahead_until, last or 0)
    ledger.entries.save(row)
    # Due fires can be promoted only now.
    ledger.wake(spec.job.lane)
    return FireReply(fired=tuple(fired), current=True)


def _job_of_fire(row: EntryRow, job: NewJob, moment: int) -> NewJob:
    expires_at = job.expires_at
    return job.changed(
        id=fire_id(row.name, row.first_seen_at, row.revision, moment),
        due_at=moment,
        expires_at=None if expires_at is None else min(moment + expires_at, LATEST),
        entry=row.name,
        fired_at=moment,
        key=None,
    )


def restore(ledger: Ledger, jobs: Sequence[InFlight]) -> list[Sent]:
    """See `Store.restore`."""
    check_batch("restore", len(jobs))
    step = Step(ledger)
    replies = _insert(step, jobs)
    outdated = _requeue_outdated(step, jobs, replies)
    if outdated:
        # Write the returned permits, and the jobs fed with them, before taking more.
        step.flush()
        step = Step(ledger)
    step.load(reply.id for reply in replies if reply.created or reply.id in outdated)
    for one, reply in zip(jobs, replies, strict=True):
        row = step.rows.get(reply.id)
        # A cascade without candidates ends at its creation, so it cannot be under way.
        if row is None or row.state not in QUEUED:
            continue
        if not reply.created:
            _start(step, row, one)
        _mark_awaiting(step, row, one)
    step.flush()
    return replies


def _insert(step: Step, jobs: Sequence[InFlight]) -> list[Sent]:
    """Insert jobs that do not exist; an existing job may have been edited since."""
    known = step.ledger.jobs.known([one.job.id for one in jobs])
    new = [one.job for one in jobs if one.job.id not in known]
    # Its run started before the restore, and a job is never younger than its run.
    created = {one.job.id: min(step.ledger.now, one.since_at) for one in reversed(jobs)}
    made = iter(insert_new(step.ledger, step.cache, new, limited=False, created=created))
    return [Sent(one.job.id, created=False) if one.job.id in known else next(made) for one in jobs]


def _requeue_outdated(step: Step, jobs: Sequence[InFlight], replies: Sequence[Sent]) -> set[str]:
    """Requeue jobs whose state in the store is outdated, and return their ids.

    Queued ones stay queued.
    """
    newer = [
        (one, reply.id)
        for one, reply in zip(jobs, replies, strict=True)
        if one.newer and not reply.created
    ]
    step.load(job for _, job in newer)
    outdated: set[str] = set()
    for one, job in newer:
        row = step.row(job)
        if row is None or row.state in FINAL or _is_this_run(step, row, one):
            continue
        if row.state in HELD:
            step.requeue(row, "lost", due_at=None, repeat=False, error="the store was an older one")
        outdated.add(job)
    return outdated


def _is_this_run(step: Step, row: JobRow, one: InFlight) -> bool:
    known = step.ledger.signals.known(one.signal_key)
    return row.state is State.AWAITING and known == (row.id, row.run)


def _start(step: Step, row: JobRow, one: InFlight) -> None:
    """Start a queued job at the stage in which it is under way."""
    stage = stage_of(step, row, one.job.stage, one.job.gates)
    if row.state is not State.WAITING:
        step.move(row, State.WAITING)
    step.move(row, State.RUNNING)
    row.stage, row.flow, row.keyed = stage


def _run_number(row: JobRow, one: InFlight) -> int:
    """Return the number of the run under way, never one that was used before."""
    job, run = read_reference(one.signal_key) or ("", 0)
    return max(row.run + 1, run if job == row.id else 0)


def _mark_awaiting(step: Step, row: JobRow, one: InFlight) -> None:
    ledger = step.ledger
    # It never ran here, so the states between are skipped.
    ledger.counts.move(row.lane, row.state, State.AWAITING)
    row.state = State.AWAITING
    row.run, row.attempt = _run_number(row, one), row.attempt + 1
    row.claimed_at, row.handed_at = max(row.created_at, one.since_at), one.since_at
    row.error = ""
    row.deadline_at = ledger.now + max(1, one.deadline_ms)
    row.care = row.in_doubt = row.gated = True
    for use in one.job.gates:
        if use.hold == "settled":
            _take(step, row, use, one)
    for key in dict.fromkeys((f"{row.id}:{row.run}", one.signal_key)):
        ledger.signals.make_known(key, row.id, row.run)
    step.changed(row)
    ask_provider(step, row)
    apply_kept(step, row, one.signal_key)


def _take(step: Step, row: JobRow, use: GateUse, one: InFlight) -> None:
    spec = step.cache.spec(use.template)
    rules = RULES[spec.kind] if spec is not None else None
    if rules is None or not rules.takes_permits:
        return
    member = one.members.get(use.name, "") if rules.chooses_member else ""
    if rules.chooses_member and not member:
        return
    gate, pool = rules.permit_gate(use.name, member)
    row.members[use.name] = member
    step.cache.count_taken(gate, use.template, use.amount, pool)
    permit = PermitRow(gate, row.id, row.run, pool, use.amount, one.since_at, use.hold)
    step.ledger.permits.add([permit])
