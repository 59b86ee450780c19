"""Counts of the jobs of each lane in each state, and totals."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.state import State
from headway.stores.ledger.columns.states import CODES, STATES
from headway.stores.sqlite.session import Session

_WIDTH = 8
"""Numbers of a lane's counts, one for each state."""
_TOTALS = -16
"""The number of a total is this minus that of its word."""


class SqliteCounts:
    """See `CountTable`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._numbers = session.numbers

    def move(self, lane: str, old: State | None, new: State | None, n: int = 1) -> None:
        first = self._session.lanes.number(lane) * _WIDTH
        if old is not None:
            self._numbers.add(first + CODES[old], -n)
        if new is not None:
            self._numbers.add(first + CODES[new], n)

    def happened(self, what: str, n: int = 1) -> None:
        if n:
            self._numbers.add(_TOTALS - self._session.words.number(what), n)

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, dict[State, int]]:
        found: dict[str, dict[State, int]] = {}
        for lane in lanes:
            number = self._session.lanes.find(lane)
            if number is None:
                continue
            get, first = self._numbers.get, number * _WIDTH
            counts = {state: get(first + code) for code, state in enumerate(STATES)}
            found[lane] = {state: n for state, n in counts.items() if n}
        return found

    def of_states(self) -> dict[State, int]:
        sums = dict.fromkeys(STATES, 0)
        for key, n in self._numbers.of_lanes():
            sums[STATES[key % _WIDTH]] += n
        return {state: n for state, n in sums.items() if n}

    def totals(self) -> dict[str, int]:
        word = self._session.words.thing
        return {word(_TOTALS - key): n for key, n in self._numbers.of_totals()}
