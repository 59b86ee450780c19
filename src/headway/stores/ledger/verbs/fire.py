"""Fire: insert a timetable entry's next moments ahead of time as scheduled jobs."""

from __future__ import annotations

from dataclasses import replace

from headway.contract.definitions import FireReply, FireRequest
from headway.core.job import NewJob, fire_id
from headway.stores.ledger.gatebook import GateBook
from headway.stores.ledger.insert import insert_new
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import EntryRow
from headway.stores.ledger.verbs.enqueue import check_batch


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
    book = GateBook(ledger)
    jobs = [_job(row, spec.job, moment) for moment in fired]
    insert_new(ledger, book, jobs, limited=False, derived=True)
    book.save()
    row.last_fired = last
    row.ahead_until = max(row.ahead_until or 0, request.ahead_until, last or 0)
    ledger.entries.save(row)
    # Due fires could not be promoted until now.
    ledger.wake(spec.job.lane)
    return FireReply(fired=tuple(fired), current=True)


def _job(row: EntryRow, job: NewJob, moment: int) -> NewJob:
    return replace(
        job,
        id=fire_id(row.name, row.first_seen_at, row.revision, moment),
        due_at=moment,
        entry=row.name,
        fired_at=moment,
        key=None,
    )
