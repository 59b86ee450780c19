"""Promotion of due jobs, and which fires of timetable entries are repeated or skipped."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.definitions import EntrySpec
from headway.core.job import MAX_BATCH, fire_id
from headway.core.state import QUEUED, State
from headway.core.timetable.fires import DROPPED, MISSED_AFTER_MS, REVISIONS, MisfirePolicy
from headway.stores.ledger.rows import DueFire, EntryRow, JobRow
from headway.stores.ledger.step import Step
from headway.stores.ledger.tables import JobTable


def undecided_fires(jobs: JobTable, entry: EntryRow, moments: Sequence[int]) -> list[int]:
    """Return the moments whose fire no earlier revision of the entry has decided.

    A fire that an operator cancelled, or that has run early, is over for all later revisions.
    """
    rows = jobs.load(_former_ids(entry, moments))
    return [
        moment
        for moment in moments
        if not any(_is_decided(rows.get(one)) for one in _former_ids(entry, [moment]))
    ]


def _former_ids(entry: EntryRow, moments: Sequence[int]) -> list[str]:
    """Return the ids that the jobs of fires had under earlier revisions of their entry."""
    ids: list[str] = []
    for moment in moments:
        revision = entry.revision - 1
        while revision >= max(1, entry.revision - REVISIONS):
            ids.append(fire_id(entry.name, entry.first_seen_at, revision, moment))
            revision -= 1
    return ids


def _is_decided(job: JobRow | None) -> bool:
    return job is not None and job.reason != DROPPED


def due_fires(step: Step, entry: str) -> Sequence[DueFire]:
    """Return all due fires of an entry: its policies must see them together."""
    now = step.ledger.now
    return [
        DueFire(job.seq, job.id, entry, job.due_at, job.lane)
        for job in step.ledger.jobs.of_entry(entry)
        if job.state is State.SCHEDULED and job.run == 0 and job.due_at <= now
    ]


def decide_fires(step: Step, entry: str, due: Sequence[DueFire]) -> Sequence[DueFire]:
    """Decide which of an entry's due fires become waiting; the others are folded.

    After an outage, nothing is decided until all fires up to now have been inserted, so that the
    misfire policy sees all of them.

    Args:
        step: ends the folded fires.

    Returns:
        The fires to promote.
    """
    row = step.ledger.entries.load(entry)
    if row is None or row.spec is None:
        return due
    if row.ahead_until is not None and row.ahead_until < step.ledger.now:
        return ()
    kept = _by_overlap(step, row.spec, _by_misfire(step, row.spec, due))
    ids = {one.id for one in kept}
    folded = [one.id for one in due if one.id not in ids]
    if folded:
        step.load(folded)
        for job in folded:
            _fold(step, row, step.rows[job])
        step.ledger.entries.save(row)
    return kept


def _fold(step: Step, entry: EntryRow, job: JobRow) -> None:
    """End a fire that a policy skips, and count it."""
    step.end(job, State.CANCELLED, "", reason="folded")
    entry.folded += 1
    step.ledger.counts.happened("folded")


def _by_misfire(step: Step, spec: EntrySpec, due: Sequence[DueFire]) -> Sequence[DueFire]:
    late = step.ledger.now - MISSED_AFTER_MS
    missed = [one for one in due if one.due_at < late]
    fresh = [one for one in due if one.due_at >= late]
    if spec.misfire is MisfirePolicy.SKIP:
        return fresh
    if spec.misfire is MisfirePolicy.ONCE:
        # The fire that is due now makes up for all missed ones.
        return fresh or [missed[-1]]
    first = max(0, len(missed) - spec.misfire_cap)
    return [*missed[first:], *fresh]


def _by_overlap(step: Step, spec: EntrySpec, due: Sequence[DueFire]) -> Sequence[DueFire]:
    if spec.overlap == "all" or not due:
        return due
    ids = {one.id for one in due}
    earlier = [
        job
        for job in step.ledger.jobs.of_entry(spec.name)
        if job.id not in ids and (job.state is not State.SCHEDULED or job.run)
    ]
    if spec.overlap == "skip":
        return () if earlier else due[:1]
    # "one": at most one fire waits, however many run.
    return () if any(job.state in QUEUED for job in earlier) else due[:1]


def promote(step: Step, lanes: Sequence[str]) -> dict[str, int]:
    """Promote at most 1000 due jobs of each lane, and further fires of the same entries.

    Args:
        step: ends the folded fires.

    Returns:
        The number of jobs that became waiting, by lane.
    """
    jobs = step.ledger.jobs
    counts = step.ledger.counts
    promoted, due = jobs.promote_due(lanes, MAX_BATCH)
    found: dict[str, int] = {}
    fires: dict[str, list[DueFire]] = {}
    entries: list[str] = []
    for fire in due:
        found[fire.lane] = found.get(fire.lane, 0) + 1
        if fire.entry not in fires:
            fires[fire.entry] = []
            entries.append(fire.entry)
        fires[fire.entry].append(fire)
    full = [lane for lane in lanes if promoted.get(lane, 0) + found.get(lane, 0) >= MAX_BATCH]
    for lane in lanes:
        if lane in promoted:
            counts.move(lane, State.SCHEDULED, State.WAITING, promoted[lane])
    kept: list[DueFire] = []
    for entry in entries:
        for fire in decide_fires(step, entry, due_fires(step, entry) if full else fires[entry]):
            kept.append(fire)
            promoted[fire.lane] = promoted.get(fire.lane, 0) + 1
            counts.move(fire.lane, State.SCHEDULED, State.WAITING)
    if kept:
        jobs.promote(kept)
    for lane in full:
        step.wake(lane)
    return promoted
