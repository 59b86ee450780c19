"""Lead: leader election by terms, for chores with outside effects."""

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
            # Also for the same holder: it cannot know whether others have led meanwhile.
            term += 1
    ledger.facts.set_leader(role, holder, term, now + lease_ms)
    return term
