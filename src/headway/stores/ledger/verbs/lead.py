"""Lead: one holder at a time does the chores with outside effects, by terms."""

from __future__ import annotations

from headway.stores.ledger.ledger import Ledger


def lead(ledger: Ledger, role: str, holder: str, lease_ms: int) -> int | None:
    """See `Store.lead`."""
    current = ledger.facts.leader(role)
    now = ledger.now
    if current is None:
        term = 1
    else:
        leader, term, until_at = current
        if leader != holder or until_at <= now:
            if until_at > now:
                return None
            # Also for the same holder: others may have led meanwhile, for all it knows.
            term += 1
    ledger.facts.set_leader(role, holder, term, now + lease_ms)
    return term
