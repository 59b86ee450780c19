"""The store's own facts: who it is, its epoch, its revision, who leads."""

from __future__ import annotations

from headway.contract.mending import Suspicion
from headway.stores.ledger.sights import suspicion
from headway.stores.ledger.tables.records import TrailTable
from headway.stores.sqlite.numbers import EPOCH, IDENTITY, REVISION
from headway.stores.sqlite.session import Session

_LEADER = "SELECT holder, term, until_at FROM leader WHERE role = ?"
_SET_LEADER = (
    "INSERT INTO leader VALUES (?, ?, ?, ?) ON CONFLICT (role) DO UPDATE"
    " SET holder = excluded.holder, term = excluded.term, until_at = excluded.until_at"
)


class SqliteFacts:
    """The store's own facts."""

    def __init__(self, session: Session, trail: TrailTable) -> None:
        self._session = session
        self._trail = trail
        self._numbers = session.numbers

    def identity(self) -> str:
        """Written once, random."""
        return f"{self._numbers.get(IDENTITY):016x}"

    def epoch(self) -> int:
        """Raised when an older state came back; part of the fence."""
        return self._numbers.get(EPOCH)

    def revision(self) -> int:
        """Of the definitions."""
        return self._numbers.get(REVISION)

    def bump_revision(self) -> int:
        """One more."""
        return self._numbers.add(REVISION, 1)

    def clock_ahead_ms(self) -> int:
        """By how much the store's time is ahead of its clock."""
        return self._session.clock_ahead_ms()

    def suspicion(self) -> Suspicion | None:
        """Why claims are refused in the whole store; None while they are answered."""
        session = self._session
        if not session.changed:
            return None
        return suspicion(self._trail, session.now, session.watch.reason)

    def leader(self, role: str) -> tuple[str, int, int] | None:
        """(holder, term, until) of a role."""
        return self._session.db.execute(_LEADER, (role,)).fetchone()

    def set_leader(self, role: str, holder: str, term: int, until_at: int) -> None:
        """Writes a role's leader."""
        self._session.db.execute(_SET_LEADER, (role, holder, term, until_at))
