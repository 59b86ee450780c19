"""The tables of lanes, tenants' starts and counts, as far as the SQL stores share them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from headway.core.state import State
from headway.stores.ledger.columns import CODES, STATES
from headway.stores.ledger.packing import decode_lane_spec
from headway.stores.ledger.rows import LaneRow
from headway.stores.sql.statement import (
    FIRST_TOTAL,
    WIDTH,
    Rows,
    Select,
    SessionOf,
    SqlSession,
    SqlTable,
    of,
)

LANE = Select("SELECT spec, override, level FROM @lane WHERE name = $1", of("lane"), ahead=True)
STARTS = Select(
    "SELECT tenant, starts FROM @tenant_start WHERE lane = $1 AND tenant = ANY ($2)",
    of("tenant_start"),
    ahead=True,
)
_ALL_STARTS = Select("SELECT tenant, starts FROM @tenant_start WHERE lane = $1", of("tenant_start"))
_LAST_KEY = 2**62


def read_lane(name: str, rows: Rows) -> LaneRow | None:
    """Read a lane from the result of `LANE`; return None if it has no row."""
    if not rows:
        return None
    spec, override, level = rows[0]
    return LaneRow(
        name,
        decode_lane_spec(spec) if spec is not None else None,
        decode_lane_spec(override) if override is not None else None,
        level,
    )


class SqlLanes(SqlTable[SessionOf], ABC):
    """Lanes, and the starts of tenants; see `LaneTable`. Each store caches lanes in its own way."""

    @abstractmethod
    def _row(self, name: str) -> LaneRow | None:
        """Return a copy of a lane's row, if it has one."""

    def load(self, names: Iterable[str]) -> dict[str, LaneRow]:
        found: dict[str, LaneRow] = {}
        for name in names:
            row = self._row(name)
            if row is not None:
                found[name] = row
        return found

    def tenant_starts(self, lane: str, tenants: Iterable[str]) -> dict[str, int]:
        session, wanted = self._session, tuple(sorted(tenants))
        number = session.lanes.find(lane)
        if number is None or not wanted:
            return {}
        return dict(session.select(STARTS, number, session.text_list(wanted)))

    def all_tenant_starts(self, lane: str) -> dict[str, int]:
        number = self._session.lanes.find(lane)
        return {} if number is None else dict(self._session.select(_ALL_STARTS, number))


class SqlCounts(ABC):
    """Counts that each step updates, so that no reader has to scan; see `CountTable`.

    Args:
        count: adds to the number of a key.
    """

    def __init__(self, session: SqlSession, count: Callable[[int, int], object]) -> None:
        self._session = session
        self._count = count

    @abstractmethod
    def _sums(self, keys: list[int]) -> Iterable[tuple[int, int]]:
        """Return the numbers of these keys."""

    @abstractmethod
    def _between(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Return the numbers of all keys from `first` to `last`, in order."""

    def move(self, lane: str, old: State | None, new: State | None, n: int = 1) -> None:
        first = self._session.lanes.number(lane) * WIDTH
        if old is not None:
            self._count(first + CODES[old], -n)
        if new is not None:
            self._count(first + CODES[new], n)

    def happened(self, what: str, n: int = 1) -> None:
        if n:
            self._count(FIRST_TOTAL - self._session.words.number(what), n)

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, dict[State, int]]:
        find = self._session.lanes.find
        names = {number: lane for lane in lanes if (number := find(lane)) is not None}
        found: dict[str, dict[State, int]] = {lane: {} for lane in names.values()}
        keys = [number * WIDTH + code for number in names for code in range(WIDTH)]
        for key, n in self._sums(keys) if keys else ():
            if n:
                found[names[key // WIDTH]][STATES[key % WIDTH]] = n
        return found

    def of_states(self) -> dict[State, int]:
        sums = dict.fromkeys(STATES, 0)
        for key, n in self._between(1, _LAST_KEY):
            sums[STATES[key % WIDTH]] += n
        return {state: n for state, n in sums.items() if n}

    def totals(self) -> dict[str, int]:
        word = self._session.words.value
        return {word(FIRST_TOTAL - key): n for key, n in self._between(-_LAST_KEY, FIRST_TOTAL - 1)}
