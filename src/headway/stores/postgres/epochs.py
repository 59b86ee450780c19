"""New epochs: an operator's word that what was handed out before is void."""

from __future__ import annotations

from headway.stores.ledger.fingerprint import mark_suspect
from headway.stores.ledger.rows import TrailRow
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.numbers import EPOCH, EPOCH_AT, HIGH_WATER, SUSPECT
from headway.stores.postgres.statement import Tell, of

_END_LEASES = Tell(
    # With a number of its own each row is another one to a beat that has read it.
    "UPDATE @worker SET lease_until = least(lease_until, $1), no = no + 1 WHERE NOT lapsed",
    of("worker"),
)
_NO_BEATS = Tell("LOCK TABLE @worker IN SHARE ROW EXCLUSIVE MODE", of())
_SET_BACK = Tell(f"UPDATE @number SET n = $1 WHERE key = {HIGH_WATER}", of())  # noqa: S608  (a constant)


def mark_if_changed(ledger: PostgresLedger) -> None:
    """Tell all processes that this one found the store to be another or an older one.

    A process that looks later may find no contradiction: time has gone on by then.
    """
    session = ledger.session
    reason = session.shared.watch.reason
    if reason and not session.number(SUSPECT):
        session.put(SUSPECT, 1)
        mark_suspect(ledger, reason)


def new_epoch(ledger: PostgresLedger, author: str, reason: str) -> int:
    """End every lease, so that the runs of before can write nothing any more.

    Returns:
        The epoch now.
    """
    session = ledger.session
    epoch = session.number(EPOCH) + 1
    session.put(EPOCH, epoch)
    session.put(EPOCH_AT, ledger.now)
    session.put(SUSPECT, 0)
    session.tell(_NO_BEATS)
    session.tell(_END_LEASES, ledger.now)
    ledger.trail.add([TrailRow(0, ledger.now, author, reason, "new epoch", "store", str(epoch))])
    ledger.wake(None)
    return epoch


def reset_clock(ledger: PostgresLedger, author: str, reason: str) -> int:
    """Set the store's time back to its clock; every lease ends, because its end lies ahead.

    Returns:
        By how many ms the time went back.
    """
    session = ledger.session
    ahead = session.clock_ahead_ms()
    session.now -= ahead
    session.tell(_SET_BACK, session.now)
    session.put(HIGH_WATER, session.now)
    new_epoch(ledger, author, reason)
    return ahead
