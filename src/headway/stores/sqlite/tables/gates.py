"""The tables of declared gates and of their instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.stores.ledger.columns.gates import GATE, encode_rest, read_gate, read_templates
from headway.stores.ledger.gaterows import GateRow, TemplateRow
from headway.stores.ledger.packing import encode_gate_spec
from headway.stores.sqlite.database import text_list
from headway.stores.sqlite.numbers import DEFINITIONS
from headway.stores.sqlite.session import Session

_TEMPLATES = "SELECT name, spec, override FROM template ORDER BY name"
_SAVE_TEMPLATE = (
    "INSERT INTO template VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
    " SET spec = excluded.spec, override = excluded.override"
)
_LOAD = f"SELECT {GATE} FROM gate WHERE name IN carray(?)"  # noqa: S608  (names of columns only)
_SAVE = (
    "INSERT INTO gate VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
    " template = excluded.template, pool = excluded.pool, used = excluded.used,"
    " timer_at = excluded.timer_at, horizon_at = excluded.horizon_at, rest = excluded.rest"
)
_REMOVE = "DELETE FROM gate WHERE name = ?"
_PAGE = f"SELECT {GATE} FROM gate WHERE name > ? ORDER BY name LIMIT ?"  # noqa: S608  (names of columns only)
_DUE_TIMERS = (
    "SELECT name FROM gate INDEXED BY gate_timer"
    " WHERE timer_at <= ? AND timer_at IS NOT NULL ORDER BY timer_at, name LIMIT ?"
)
_NEXT_TIMER = "SELECT min(timer_at) FROM gate INDEXED BY gate_timer WHERE timer_at IS NOT NULL"
_SHORT_HORIZONS = (
    f"SELECT {GATE} FROM gate INDEXED BY gate_horizon"  # noqa: S608  (names of columns only)
    " WHERE horizon_at < ? AND horizon_at IS NOT NULL ORDER BY horizon_at, name LIMIT ?"
)

_Kept = tuple[str, str, str, int, int | None, int | None, bytes | None]


class SqliteGates:
    """See `GateTable`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def templates(self) -> Mapping[str, TemplateRow]:
        memory, definitions = self._session.memory, self._session.numbers.get(DEFINITIONS)
        if memory.templates is None or memory.definitions != definitions:
            memory.templates = read_templates(self._db.execute(_TEMPLATES))
            memory.definitions = definitions
        return memory.templates

    def save_template(self, row: TemplateRow) -> None:
        spec, override = encode_gate_spec(row.spec), encode_gate_spec(row.override)
        self._db.execute(_SAVE_TEMPLATE, (row.spec.name, spec, override))
        self._session.numbers.add(DEFINITIONS, 1)

    def load(self, names: Iterable[str]) -> dict[str, GateRow]:
        wanted = tuple(names)
        if not wanted:
            return {}
        return {row[0]: read_gate(row) for row in self._db.execute(_LOAD, (text_list(wanted),))}

    def save(self, rows: Iterable[GateRow]) -> None:
        kept: list[_Kept] = []
        idle: list[tuple[str]] = []
        for row in rows:
            if row.idle():
                idle.append((row.name,))
            else:
                kept.append(_columns(row))
        if kept:
            self._db.executemany(_SAVE, kept)
        if idle:
            self._db.executemany(_REMOVE, idle)

    def page(self, after: str, limit: int) -> list[GateRow]:
        return [read_gate(row) for row in self._db.execute(_PAGE, (after, limit))]

    def due_timers(self, limit: int) -> list[str]:
        return [name for (name,) in self._db.execute(_DUE_TIMERS, (self._session.now, limit))]

    def next_timer(self) -> int | None:
        return self._db.execute(_NEXT_TIMER).get

    def short_horizons(self, before_at: int, limit: int) -> list[GateRow]:
        return [read_gate(row) for row in self._db.execute(_SHORT_HORIZONS, (before_at, limit))]


def _columns(row: GateRow) -> _Kept:
    rest = encode_rest(row)
    return (row.name, row.template, row.pool, row.used, row.timer_at, row.horizon_at, rest)
