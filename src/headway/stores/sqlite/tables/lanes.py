"""The tables of lanes and of their tenants' starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.stores.ledger.packing import decode_lane_spec, encode_lane_spec
from headway.stores.ledger.rows import LaneRow
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
