"""Counts: how many jobs of each lane are in each state, and totals."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.state import State
from headway.stores.ledger.columns.states import CODES, STATES
from headway.stores.postgres.arrays import Numbers
from headway.stores.postgres.numbers import FIRST_TOTAL, WIDTH
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, of

_CHANGED = "SELECT one.* FROM @delta CROSS JOIN LATERAL unnest(keys, ns) AS one (key, n)"
_SUMS = "SELECT key, sum(n)::bigint FROM ({}) AS one (key, n) GROUP BY key ORDER BY key"
_SOME = Ask(
    _SUMS.format(
        "SELECT key, n FROM @number WHERE key = ANY ($1)"  # noqa: S608  (a constant)
        f" UNION ALL SELECT * FROM ({_CHANGED}) AS one (key, n) WHERE key = ANY ($1)"
    ),
    of("counts"),
)
_BETWEEN = Ask(
    _SUMS.format(
        "SELECT key, n FROM @number WHERE key BETWEEN $1 AND $2"  # noqa: S608  (a constant)
        f" UNION ALL SELECT * FROM ({_CHANGED}) AS one (key, n) WHERE key BETWEEN $1 AND $2"
    ),
    of("counts"),
)
_END = 2**62


class PostgresCounts:
    """Counts that are kept with each step, so that no reader has to scan."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def move(self, lane: str, old: State | None, new: State | None, n: int = 1) -> None:
        first = self._session.lanes.number(lane) * WIDTH
        if old is not None:
            self._session.count(first + CODES[old], -n)
        if new is not None:
            self._session.count(first + CODES[new], n)

    def happened(self, what: str, n: int = 1) -> None:
        if n:
            self._session.count(FIRST_TOTAL - self._session.words.number(what), n)

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, dict[State, int]]:
        names = {
            number: lane for lane in lanes if (number := self._session.lanes.find(lane)) is not None
        }
        if not names:
            return {}
        keys = Numbers(number * WIDTH + code for number in names for code in range(WIDTH))
        found: dict[str, dict[State, int]] = {lane: {} for lane in names.values()}
        for key, n in self._session.ask(_SOME, keys):
            if n:
                found[names[key // WIDTH]][STATES[key % WIDTH]] = n
        return found

    def of_states(self) -> dict[State, int]:
        sums = dict.fromkeys(STATES, 0)
        for key, n in self._session.ask(_BETWEEN, 1, _END):
            sums[STATES[key % WIDTH]] += n
        return {state: n for state, n in sums.items() if n}

    def totals(self) -> dict[str, int]:
        word = self._session.words.thing
        rows = self._session.ask(_BETWEEN, -_END, FIRST_TOTAL - 1)
        return {word(FIRST_TOTAL - key): n for key, n in rows}
