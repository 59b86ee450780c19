"""Restore: jobs whose work is under way already are made, awaiting, with their permits."""

from __future__ import annotations

from collections.abc import Sequence

from headway.contract.enqueue import Enqueued, InFlight
from headway.core.gates.pool import member_gate
from headway.core.gates.spec import GateKind, GateUse
from headway.core.state import FINAL, State
from headway.stores.ledger.gaterows import PermitRow
from headway.stores.ledger.insert import insert_new
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import JobRow
from headway.stores.ledger.step import Step
from headway.stores.ledger.verbs.enqueue import check_batch
from headway.stores.ledger.verbs.hear import apply_kept
from headway.stores.ledger.verbs.lapse import ask_provider


def restore(ledger: Ledger, jobs: Sequence[InFlight]) -> list[Enqueued]:
    """See `Store.restore`."""
    check_batch("restore", len(jobs))
    step = Step(ledger)
    replies = insert_new(ledger, step.book, [one.job for one in jobs])
    step.load(reply.id for reply in replies if reply.created)
    for one, reply in zip(jobs, replies, strict=True):
        # A cascade without candidates is over as it is made, and so cannot be under way.
        if reply.created and step.rows[reply.id].state not in FINAL:
            _take_up(step, step.rows[reply.id], one)
    step.flush()
    return replies


def _take_up(step: Step, row: JobRow, one: InFlight) -> None:
    ledger = step.ledger
    # It never ran here: the states between are skipped, and only counted.
    ledger.counts.move(row.lane, row.state, State.AWAITING)
    row.state = State.AWAITING
    row.run, row.attempt = 1, 1
    row.claimed_at = row.handed_at = one.since_at
    row.deadline_at = ledger.now + max(1, one.deadline_ms)
    row.care = row.in_doubt = row.gated = True
    for use in one.job.gates:
        if use.hold == "settled":
            _take(step, row, use, one)
    ledger.signals.make_known(f"{row.id}:1", row.id, 1)
    ledger.signals.make_known(one.signal_key, row.id, 1)
    step.changed(row)
    ask_provider(step, row)
    apply_kept(step, row, one.signal_key)


def _take(step: Step, row: JobRow, use: GateUse, one: InFlight) -> None:
    spec = step.book.spec(use.template)
    if spec is None or spec.kind not in {GateKind.SLOTS, GateKind.POOL}:
        return
    gate, pool = use.name, ""
    if spec.kind is GateKind.POOL:
        member = one.members.get(use.name)
        if member is None:
            return
        gate, pool = member_gate(use.name, member), use.name
        row.members[pool] = member
    else:
        row.members[gate] = ""
    step.book.use_up(gate, use.template, use.amount, pool)
    permit = PermitRow(gate, row.id, row.run, pool, use.amount, one.since_at, use.hold)
    step.ledger.permits.add([permit])
