"""The store's own facts: who it is, its epoch, its revision, who leads."""

from __future__ import annotations

from headway.contract.repair import Suspicion
from headway.stores.ledger.fingerprint import suspicion
from headway.stores.ledger.tables.records import TrailTable
from headway.stores.postgres.numbers import EPOCH, IDENTITY, REVISION
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Tell, of

_LEADER = Ask("SELECT holder, term, until_at FROM @leader WHERE role = $1", of("leader"))
_SET_LEADER = Tell(
    "INSERT INTO @leader VALUES ($1, $2, $3, $4) ON CONFLICT (role) DO UPDATE"
    " SET holder = excluded.holder, term = excluded.term, until_at = excluded.until_at",
    of("leader"),
)


class PostgresFacts:
    """The store's own facts."""

    def __init__(self, session: Session, trail: TrailTable) -> None:
        self._session = session
        self._trail = trail

    def identity(self) -> str:
        return f"{self._session.number(IDENTITY):016x}"

    def epoch(self) -> int:
        return self._session.number(EPOCH)

    def revision(self) -> int:
        return self._session.number(REVISION)

    def bump_revision(self) -> int:
        revision = self._session.number(REVISION) + 1
        self._session.put(REVISION, revision)
        return revision

    def clock_ahead_ms(self) -> int:
        return self._session.clock_ahead_ms()

    def suspicion(self) -> Suspicion | None:
        session = self._session
        if not session.changed:
            return None
        return suspicion(self._trail, session.now, session.shared.watch.reason)

    def leader(self, role: str) -> tuple[str, int, int] | None:
        rows = self._session.ask(_LEADER, role)
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    def set_leader(self, role: str, holder: str, term: int, until_at: int) -> None:
        self._session.tell(_SET_LEADER, role, holder, term, until_at)
