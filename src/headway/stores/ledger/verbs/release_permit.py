"""Release a permit by force, for an operator."""

from __future__ import annotations

from headway.core.naming import check_name
from headway.stores.ledger.feeding import feed_gate
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import TrailRow
from headway.stores.ledger.step import Step


def release_permit(ledger: Ledger, gate: str, job: str, author: str, reason: str) -> bool:
    """See `Store.release_permit`."""
    check_name("author", author)
    permits = [one for one in ledger.permits.of_jobs([job]) if gate in {one.gate, one.pool}]
    if not permits:
        return False
    step = Step(ledger)
    freed = step.return_permits(permits)
    for name in freed:
        feed_gate(step.book, name)
    step.flush()
    ledger.trail.add([TrailRow(0, ledger.now, author, reason, "release_permit", gate, job)])
    return True
