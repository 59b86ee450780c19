"""Beat: a worker extends its leases, and learns which runs are lost or to be cancelled."""

from __future__ import annotations

from headway.contract.claims import BeatReply, BeatRequest
from headway.core.state import State
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import WorkerRow
from headway.stores.ledger.step import Step
from headway.stores.ledger.verbs.lapse import lapse


def beat(ledger: Ledger, request: BeatRequest) -> BeatReply:
    """See `Store.beat`."""
    step = Step(ledger)
    known = ledger.workers.load(request.worker)
    worker = known or WorkerRow(id=request.worker)
    if known and worker.lease_until <= ledger.now and not worker.lapsed:
        lapse(step, worker)
        step.flush()
    held = {(one.id, one.run): one for one in ledger.jobs.held_by(request.worker)}
    listed = set(request.running)
    unused = [
        one
        for key, one in held.items()
        if key not in listed
        and one.state is State.RUNNING
        and (one.request <= request.request or request.leaving)
    ]
    step.load(one.id for one in unused)
    for one in unused:
        release_unused(step, one.id)
    _progress(step, request, set(held))
    worker.name = request.name or worker.name
    worker.lanes = request.lanes or worker.lanes
    worker.seen_at = ledger.now
    worker.lease_until = ledger.now if request.leaving else ledger.now + request.lease_ms
    worker.lapsed = request.leaving
    if request.leaving:
        # Write the released runs first, so that they do not count as lost.
        step.flush()
        lapse(step, worker)
    ledger.workers.save(worker)
    step.flush()
    cancel = (key for key in request.running if key in held and held[key].cancel_requested)
    return BeatReply(
        now=ledger.now,
        lease_until=worker.lease_until,
        lost=tuple(key for key in request.running if key not in held),
        cancel=tuple(cancel),
    )


def release_unused(step: Step, job: str) -> None:
    """Requeue a run whose claim's reply never reached its worker; its attempt is not counted."""
    row = step.row(job)
    if row is not None and row.state is State.RUNNING:
        step.requeue(row, "unused", due_at=None, repeat=True)


def _progress(step: Step, request: BeatRequest, held: set[tuple[str, int]]) -> None:
    live = [(job, data) for job, run, data in request.progress if (job, run) in held]
    step.load(job for job, _ in live)
    for job, data in live:
        row = step.row(job)
        if row is not None:
            row.progress = data
            step.changed(row)
