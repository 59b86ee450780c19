"""The store's own facts: its identity, epoch, revision and leaders."""

from __future__ import annotations

from headway.contract.repair import Suspicion
from headway.stores.ledger.fingerprint import suspicion
from headway.stores.ledger.tables.records import TrailTable
from headway.stores.sqlite.numbers import EPOCH, IDENTITY, REVISION
from headway.stores.sqlite.session import Session

_LEADER = "SELECT holder, term, until_at FROM leader WHERE role = ?"
_SET_LEADER = (
    "INSERT INTO leader VALUES (?, ?, ?, ?) ON CONFLICT (role) DO UPDATE"
    " SET holder = excluded.holder, term = excluded.term, until_at = excluded.until_at"
)


class SqliteFacts:
    """See `FactTable`."""

    def __init__(self, session: Session, trail: TrailTable) -> None:
        self._session = session
        self._trail = trail
        self._numbers = session.numbers

    def identity(self) -> str:
        return f"{self._numbers.get(IDENTITY):016x}"

    def epoch(self) -> int:
        return self._numbers.get(EPOCH)

    def revision(self) -> int:
        return self._numbers.get(REVISION)

    def bump_revision(self) -> int:
        return self._numbers.add(REVISION, 1)

    def clock_ahead_ms(self) -> int:
        return self._session.clock_ahead_ms()

    def suspicion(self) -> Suspicion | None:
        session = self._session
        if not session.changed:
            return None
        return suspicion(self._trail, session.now, session.watch.reason)

    def leader(self, role: str) -> tuple[str, int, int] | None:
        return self._session.db.execute(_LEADER, (role,)).fetchone()

    def set_leader(self, role: str, holder: str, term: int, until_at: int) -> None:
        self._session.db.execute(_SET_LEADER, (role, holder, term, until_at))
