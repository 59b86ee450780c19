"""New epochs, by which an operator fences all runs of before."""

from __future__ import annotations

from headway.stores.ledger.fingerprint import mark_suspect
from headway.stores.ledger.rows import TrailRow
from headway.stores.sqlite.ledger import SqliteLedger
from headway.stores.sqlite.numbers import EPOCH, EPOCH_AT, HIGH_WATER, SUSPECT

_END_LEASES = (
    "UPDATE worker INDEXED BY worker_lease SET lease_until = min(lease_until, ?) WHERE lapsed = 0"
)


def mark_if_changed(ledger: SqliteLedger) -> None:
    """Record for all processes that this one found the store replaced or restored.

    A later check may not notice it, because the store's time has moved on by then.
    """
    session = ledger.session
    if session.watch.reason and not session.numbers.get(SUSPECT):
        session.fix_time()
        session.numbers.put(SUSPECT, 1)
        mark_suspect(ledger, session.watch.reason)


def new_epoch(ledger: SqliteLedger, author: str, reason: str) -> int:
    """End every lease, so that earlier runs can no longer write.

    Returns:
        The epoch now.
    """
    session = ledger.session
    epoch = session.numbers.add(EPOCH, 1)
    session.numbers.put(EPOCH_AT, ledger.now)
    session.numbers.put(SUSPECT, 0)
    session.db.execute(_END_LEASES, (ledger.now,))
    ledger.trail.add([TrailRow(0, ledger.now, author, reason, "new epoch", "store", str(epoch))])
    ledger.wake(None)
    session.recheck_facts()
    return epoch


def reset_clock(ledger: SqliteLedger, author: str, reason: str) -> int:
    """Set the store's time back to its clock, and end every lease.

    Returns:
        By how many ms the time went back.
    """
    session = ledger.session
    ahead = session.clock_ahead_ms()
    session.now -= ahead
    session.numbers.put(HIGH_WATER, session.now)
    new_epoch(ledger, author, reason)
    return ahead
