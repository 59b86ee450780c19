"""The tables of lanes, of their tenants' starts, and of counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.core.state import State
from headway.stores.ledger.columns.states import CODES, STATES
from headway.stores.ledger.packing import decode_lane_spec, encode_lane_spec
from headway.stores.ledger.rows import LaneRow
from headway.stores.sql.statement import FIRST_TOTAL, WIDTH
from headway.stores.sqlite.database import text_list
from headway.stores.sqlite.session import Session

_LOAD = "SELECT spec, override, level FROM lane WHERE name = ?"
_SAVE = "UPDATE lane SET spec = ?, override = ?, level = ? WHERE name = ?"
_NAMES = "SELECT name FROM lane ORDER BY name"
_STARTS = "SELECT tenant, starts FROM tenant_start WHERE lane = ? AND tenant IN carray(?)"
_ALL_STARTS = "SELECT tenant, starts FROM tenant_start WHERE lane = ?"
_SAVE_STARTS = (
    "INSERT INTO tenant_start VALUES (?, ?, ?)"
    " ON CONFLICT (lane, tenant) DO UPDATE SET starts = excluded.starts"
)


class SqliteLanes:
    """See `LaneTable`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def load(self, names: Iterable[str]) -> dict[str, LaneRow]:
        found: dict[str, LaneRow] = {}
        for name in names:
            row = self._row(name)
            if row is not None:
                found[name] = LaneRow(
                    name=name, spec=row.spec, override=row.override, level=row.level
                )
        return found

    def _row(self, name: str) -> LaneRow | None:
        rows = self._session.memory.lanes
        if name not in rows:
            kept = self._db.execute(_LOAD, (name,)).fetchone()
            rows[name] = kept and LaneRow(
                name=name,
                spec=decode_lane_spec(kept[0]),
                override=decode_lane_spec(kept[1]),
                level=kept[2],
            )
        return rows[name]

    def ensure(self, names: Iterable[str]) -> None:
        for name in names:
            self._session.lanes.number(name)
            if self._session.memory.lanes.get(name) is None:
                self._session.memory.lanes.pop(name, None)

    def save(self, row: LaneRow) -> None:
        self.ensure((row.name,))
        spec, override = encode_lane_spec(row.spec), encode_lane_spec(row.override)
        self._db.execute(_SAVE, (spec, override, row.level, row.name))
        self._session.memory.lanes.pop(row.name, None)

    def names(self) -> list[str]:
        return [name for (name,) in self._db.execute(_NAMES)]

    def tenant_starts(self, lane: str, tenants: Iterable[str]) -> dict[str, int]:
        number, wanted = self._session.lanes.find(lane), tuple(tenants)
        if number is None or not wanted:
            return {}
        return dict(self._db.execute(_STARTS, (number, text_list(wanted))))

    def all_tenant_starts(self, lane: str) -> dict[str, int]:
        return dict(self._db.execute(_ALL_STARTS, (self._session.lanes.find(lane),)))

    def save_tenant_starts(self, lane: str, starts: Mapping[str, int]) -> None:
        number = self._session.lanes.number(lane)
        self._db.executemany(_SAVE_STARTS, [(number, *one) for one in starts.items()])


class SqliteCounts:
    """See `CountTable`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._numbers = session.numbers

    def move(self, lane: str, old: State | None, new: State | None, n: int = 1) -> None:
        first = self._session.lanes.number(lane) * WIDTH
        if old is not None:
            self._numbers.add(first + CODES[old], -n)
        if new is not None:
            self._numbers.add(first + CODES[new], n)

    def happened(self, what: str, n: int = 1) -> None:
        if n:
            self._numbers.add(FIRST_TOTAL - self._session.words.number(what), n)

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, dict[State, int]]:
        found: dict[str, dict[State, int]] = {}
        for lane in lanes:
            number = self._session.lanes.find(lane)
            if number is None:
                continue
            get, first = self._numbers.get, number * WIDTH
            counts = {state: get(first + code) for code, state in enumerate(STATES)}
            found[lane] = {state: n for state, n in counts.items() if n}
        return found

    def of_states(self) -> dict[State, int]:
        sums = dict.fromkeys(STATES, 0)
        for key, n in self._numbers.of_lanes():
            sums[STATES[key % WIDTH]] += n
        return {state: n for state, n in sums.items() if n}

    def totals(self) -> dict[str, int]:
        word = self._session.words.thing
        return {word(FIRST_TOTAL - key): n for key, n in self._numbers.of_totals()}
