"""New epochs: an operator's word that what was handed out before is void."""

from __future__ import annotations

from headway.stores.ledger.rows import TrailRow
from headway.stores.ledger.sights import mark_suspect
from headway.stores.sqlite.ledger import SqliteLedger
from headway.stores.sqlite.numbers import EPOCH, EPOCH_AT, HIGH_WATER, SUSPECT

_END_LEASES = (
    "UPDATE worker INDEXED BY worker_lease SET lease_until = min(lease_until, ?) WHERE lapsed = 0"
)


def mark_if_changed(ledger: SqliteLedger) -> None:
    """Tells all processes that this one found the store to be another or an older one.

    Whoever looks later may see nothing odd: time has gone on by then.
    """
    session = ledger.session
    if session.watch.reason and not session.numbers.get(SUSPECT):
        session.tell_time()
        session.numbers.put(SUSPECT, 1)
        mark_suspect(ledger, session.watch.reason)


def new_epoch(ledger: SqliteLedger, author: str, reason: str) -> int:
    """Ends every lease, so that the runs of before can write nothing any more.

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
    session.look_again()
    return epoch


def reset_clock(ledger: SqliteLedger, author: str, reason: str) -> int:
    """Sets the store's time back to its clock; every lease ends, because its end lies ahead.

    Returns:
        By how many ms the time went back.
    """
    session = ledger.session
    ahead = session.clock_ahead_ms()
    session.now -= ahead
    session.numbers.put(HIGH_WATER, session.now)
    new_epoch(ledger, author, reason)
    return ahead
