"""The tables of lanes, their tenants' starts, and counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from headway.core.state import State
from headway.stores.ledger.columns import CODES
from headway.stores.ledger.packing import encode_some
from headway.stores.ledger.rows import LaneRow
from headway.stores.postgres.arrays import Numbers, Texts
from headway.stores.postgres.numbers import LANES
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import BoundSelect, Mode
from headway.stores.sql.lanes import LANE, STARTS, SqlCounts, SqlLanes, read_lane
from headway.stores.sql.statement import WIDTH, Select, Write, of

_LEVEL = Select("SELECT level FROM @lane WHERE name = $1", of("lane"), ahead=True)
_SAVE = Write(
    "UPDATE @lane SET spec = $2::bytea, override = $3::bytea, level = $4 WHERE name = $1",
    of("lane"),
)
_SAVE_LEVEL = Write("UPDATE @lane SET level = $2 WHERE name = $1", of("lane"))
_NAMES = Select(
    # A lane gets its number in its own step, before it is known whether there will be a job. It
    # exists once a committed step has written its definitions or counts.
    "SELECT name FROM @lane WHERE spec IS NOT NULL OR override IS NOT NULL OR no IN ("  # noqa: S608  (constants only)
    f"SELECT key / {WIDTH} FROM @number WHERE key >= {WIDTH}"
    f" UNION SELECT key / {WIDTH} FROM @delta CROSS JOIN LATERAL unnest(keys) AS one (key)"
    f" WHERE key >= {WIDTH}"
    ") ORDER BY name",
    of("lane", "counts"),
)
_SAVE_STARTS = Write(
    "INSERT INTO @tenant_start SELECT $1, * FROM unnest($2::text[], $3::bigint[])"
    " ON CONFLICT (lane, tenant) DO UPDATE SET starts = excluded.starts",
    of("tenant_start"),
)


class PostgresLanes(SqlLanes[Session]):
    """See `LaneTable`."""

    def load(self, names: Iterable[str]) -> dict[str, LaneRow]:
        session, names = self._session, list(names)
        if len(names) > 1:
            rows = session.shared.lanes_of(session.number(LANES))
            session.select_each(LANE, [name for name in names if name not in rows])
            fair = [name for name in names if name in rows and rows[name].current.fair]
            session.select_each(_LEVEL, fair)
        return super().load(names)

    def _row(self, name: str) -> LaneRow | None:
        session = self._session
        rows = session.shared.lanes_of(session.number(LANES))
        row = rows.get(name)
        if row is None:
            row = read_lane(name, session.select(LANE, name))
            if row is None:
                return None
            if session.may_cache:
                rows[name] = row
            level = row.level
        elif row.current.fair and session.mode is not Mode.BLIND:
            found = session.select(_LEVEL, name)
            level = found[0][0] if found else row.level
        else:
            level = row.level
        return LaneRow(name=name, spec=row.spec, override=row.override, level=level)

    def ensure(self, names: Iterable[str]) -> None:
        # The lanes exist once a step with their counts or definitions is committed.
        names = list(names)
        if len(names) > 1:
            self._session.lanes.know(names)
        for name in names:
            self._session.lanes.number(name)

    def save(self, row: LaneRow) -> None:
        session = self._session
        # Its counts exist from now on, even if it never gets a job.
        session.keep_count(session.lanes.number(row.name) * WIDTH + CODES[State.WAITING])
        rows = session.shared.lanes_of(session.number(LANES))
        before = rows.get(row.name) or self._row(row.name)
        if before is not None and (before.spec, before.override) == (row.spec, row.override):
            session.write(_SAVE_LEVEL, row.name, row.level)
            return
        spec, override = encode_some(row.spec), encode_some(row.override)
        session.write(_SAVE, row.name, spec, override, row.level)
        session.put(LANES, session.number(LANES) + 1)
        session.defined = True

    def names(self) -> list[str]:
        return [name for (name,) in self._session.select(_NAMES)]

    def tenant_starts(self, lane: str, tenants: Iterable[str]) -> dict[str, int]:
        tenants = set(tenants)
        answers = self._session.cache.answers
        first = self._starts_of(lane, tenants)
        if first not in answers:
            # Those of the other lanes of a claim are read next.
            reads = {first, *self._starts_of_fair_lanes()}
            missing = [one for one in reads if one not in answers]
            if len(missing) > 1:
                rows = self._session.fetch_all([(one.text, bound) for one, bound in missing])
                answers.update(zip(missing, rows, strict=True))
        return super().tenant_starts(lane, tenants)

    def _starts_of(self, lane: str, tenants: Iterable[str]) -> BoundSelect:
        return STARTS, (self._session.lanes.find(lane), Texts(sorted(tenants)))

    def _starts_of_fair_lanes(self) -> Iterator[BoundSelect]:
        """Yield what will be asked of each fair lane whose flows were read."""
        session = self._session
        rows = session.shared.lanes_of(session.number(LANES))
        found = {
            lane: flows
            for lane, flows in session.cache.flows_by_lane().items()
            if lane in rows and rows[lane].current.fair
        }
        session.flows.read(chain.from_iterable(found.values()))
        for lane, flows in found.items():
            yield self._starts_of(lane, {session.flows.value(flow).tenant for flow in flows})

    def save_tenant_starts(self, lane: str, starts: Mapping[str, int]) -> None:
        if starts:
            number = self._session.lanes.number(lane)
            self._session.write(_SAVE_STARTS, number, Texts(starts), Numbers(starts.values()))


_CHANGED = "SELECT one.* FROM @delta CROSS JOIN LATERAL unnest(keys, ns) AS one (key, n)"
_SUMS = "SELECT key, sum(n)::bigint FROM ({}) AS one (key, n) GROUP BY key ORDER BY key"
_COUNTS = Select(
    _SUMS.format(
        "SELECT key, n FROM @number WHERE key = ANY ($1)"  # noqa: S608  (a constant)
        f" UNION ALL SELECT * FROM ({_CHANGED}) AS one (key, n) WHERE key = ANY ($1)"
    ),
    of("counts"),
)
_COUNTS_BETWEEN = Select(
    _SUMS.format(
        "SELECT key, n FROM @number WHERE key BETWEEN $1 AND $2"  # noqa: S608  (a constant)
        f" UNION ALL SELECT * FROM ({_CHANGED}) AS one (key, n) WHERE key BETWEEN $1 AND $2"
    ),
    of("counts"),
)


class PostgresCounts(SqlCounts):
    """See `CountTable`."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, session.count)

    def _sums(self, keys: list[int]) -> Iterable[tuple[int, int]]:
        return self._session.select(_COUNTS, Numbers(keys))

    def _between(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        return self._session.select(_COUNTS_BETWEEN, first, last)
