"""The operations that all SQL stores implement in the same way, and new epochs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from headway.contract.extensions import Suspicion
from headway.stores.ledger.calls import in_thread, running_loop
from headway.stores.ledger.fingerprint import mark_suspect
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import TrailRow
from headway.stores.ledger.store import LedgerStore
from headway.stores.sql.statement import EPOCH, EPOCH_AT, SqlSession


class SqlLedger(Ledger, Protocol):
    """The tables of a SQL store within one step."""

    suspect_key: int
    """The key of the number that is 1 while claims are refused in the whole store."""

    @property
    def session(self) -> SqlSession:
        """The connection of the step."""
        ...

    def end_leases(self) -> None:
        """End all leases now, even for processes that have read one of them."""
        ...

    def set_time_back(self) -> None:
        """Lower the high-water mark to the step's time."""
        ...


class SqlStore(LedgerStore[SqlLedger]):
    """The part of `Store`, `Repairable` and `Movable` that the SQL stores share."""

    @abstractmethod
    def _close(self) -> None:
        """Release all resources. Blocks until running operations have ended."""

    async def suspicion(self) -> Suspicion | None:
        return await self._decide(lambda ledger: ledger.facts.suspicion())

    async def new_epoch(self, author: str, reason: str) -> int:
        return await self._decide(lambda ledger: _new_epoch(ledger, author, reason))

    async def reset_clock(self, author: str, reason: str) -> int:
        return await self._decide(lambda ledger: _reset_clock(ledger, author, reason))

    async def close(self) -> None:
        """Close all connections and threads, after running operations have ended."""
        if running_loop() is not None:
            await in_thread(self._close)
        else:
            self._close()


def mark_if_changed(ledger: SqlLedger) -> None:
    """Record for all processes that this one found the store replaced or restored.

    A later check may not notice it, because the store's time will have moved on.
    """
    session = ledger.session
    reason = session.watch.reason
    if reason and not session.number(ledger.suspect_key):
        session.put(ledger.suspect_key, 1)
        mark_suspect(ledger, reason)


def _new_epoch(ledger: SqlLedger, author: str, reason: str) -> int:
    """End every lease, so that earlier runs can no longer write; return the new epoch."""
    session = ledger.session
    epoch = session.number(EPOCH) + 1
    session.put(EPOCH, epoch)
    session.put(EPOCH_AT, ledger.now)
    session.put(ledger.suspect_key, 0)
    ledger.end_leases()
    ledger.trail.add([TrailRow(0, ledger.now, author, reason, "new epoch", "store", str(epoch))])
    ledger.wake(None)
    return epoch


def _reset_clock(ledger: SqlLedger, author: str, reason: str) -> int:
    """Set the store's time back to its clock, and return by how many ms.

    Every lease ends, because otherwise it would end too far in the future.
    """
    session = ledger.session
    ahead = session.clock_ahead_ms()
    session.now -= ahead
    ledger.set_time_back()
    _new_epoch(ledger, author, reason)
    return ahead
