"""The tables of lanes, tenants' starts and counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.stores.ledger.packing import encode_some
from headway.stores.ledger.rows import LaneRow
from headway.stores.ledger.wakes import MOST_KNOWN
from headway.stores.sql.lanes import LANE, SqlCounts, SqlLanes, read_lane
from headway.stores.sqlite.database import flat
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.tables import SqliteTable

_SAVE = "UPDATE lane SET spec = ?, override = ?, level = ? WHERE name = ?"
_NAMES = "SELECT name FROM lane ORDER BY name"
_SAVE_STARTS = (
    "INSERT INTO tenant_start VALUES (?, ?, ?)"
    " ON CONFLICT (lane, tenant) DO UPDATE SET starts = excluded.starts"
)


class SqliteLanes(SqliteTable, SqlLanes[Session]):
    """See `LaneTable`."""

    def _row(self, name: str) -> LaneRow | None:
        rows = self._session.memory.lanes
        if name not in rows:
            if len(rows) >= MOST_KNOWN:
                rows.clear()
            rows[name] = read_lane(name, self._session.select(LANE, name))
        row = rows[name]
        return row and LaneRow(name, row.spec, row.override, row.level)

    def ensure(self, names: Iterable[str]) -> None:
        for name in names:
            self._session.lanes.number(name)
            if self._session.memory.lanes.get(name) is None:
                self._session.memory.lanes.pop(name, None)

    def save(self, row: LaneRow) -> None:
        self.ensure((row.name,))
        spec, override = encode_some(row.spec), encode_some(row.override)
        self._db.execute(_SAVE, (spec, override, row.level, row.name))
        self._session.memory.lanes.pop(row.name, None)

    def names(self) -> list[str]:
        return list(flat(self._db.execute(_NAMES)))

    def save_tenant_starts(self, lane: str, starts: Mapping[str, int]) -> None:
        number = self._session.lanes.number(lane)
        self._db.executemany(_SAVE_STARTS, [(number, *one) for one in starts.items()])


class SqliteCounts(SqlCounts):
    """See `CountTable`."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, session.numbers.add)
        self._numbers = session.numbers

    def _sums(self, keys: list[int]) -> Iterable[tuple[int, int]]:
        return [(key, self._numbers[key]) for key in keys]

    def _between(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        return self._numbers.between(first, last)
