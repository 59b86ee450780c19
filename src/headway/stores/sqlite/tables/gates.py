"""The tables of declared gates, their instances, permits and starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headway.stores.ledger.columns import GATE, encode_gate_rest, read_gate, read_templates
from headway.stores.ledger.gaterows import (
    GateRow,
    GateTemplates,
    Holders,
    PermitRow,
    ReturnedPermits,
    TemplateRow,
    amounts_of,
)
from headway.stores.ledger.packing import encode_some
from headway.stores.sql.statement import DEFINITIONS, upsert
from headway.stores.sqlite.database import flat, text_list
from headway.stores.sqlite.session import resolve
from headway.stores.sqlite.tables import SqliteTable

_TEMPLATES = "SELECT name, spec, override FROM template ORDER BY name"
_SAVE_TEMPLATE = resolve(upsert("template", "name, spec, override"))
_LOAD = f"SELECT {GATE} FROM gate WHERE name IN carray(?)"  # noqa: S608  (names of columns only)
_SAVE = resolve(upsert("gate", GATE))
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


class SqliteGates(SqliteTable):
    """See `GateTable`."""

    def templates(self) -> GateTemplates:
        memory, definitions = self._session.memory, self._session.numbers[DEFINITIONS]
        if memory.templates is None or memory.definitions != definitions:
            memory.templates = read_templates(self._db.execute(_TEMPLATES))
            memory.definitions = definitions
        return memory.templates

    def save_template(self, row: TemplateRow) -> None:
        spec, override = encode_some(row.spec), encode_some(row.override)
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
        return list(flat(self._db.execute(_DUE_TIMERS, (self._session.now, limit))))

    def next_timer(self) -> int | None:
        return self._db.execute(_NEXT_TIMER).get

    def short_horizons(self, before_at: int, limit: int) -> list[GateRow]:
        return [read_gate(row) for row in self._db.execute(_SHORT_HORIZONS, (before_at, limit))]


def _columns(row: GateRow) -> _Kept:
    rest = encode_gate_rest(row)
    return (row.name, row.template, row.pool, row.used, row.timer_at, row.horizon_at, rest)


_ADD_PERMIT = (
    "INSERT INTO permit (gate, job, run, pool, amount, since, hold) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_PERMITS_OF_JOBS = (
    "SELECT gate, job, run, pool, amount, since, hold FROM permit WHERE job IN carray(?)"
    " ORDER BY job, gate"
)
_REMOVE_ALL = "DELETE FROM permit WHERE job IN carray(?) RETURNING gate, pool, amount"
_REMOVE_PERMITS = "DELETE FROM permit WHERE job IN carray(?) AND gate = ?"
_PERMITS_AT = (
    "SELECT gate, job, run, pool, amount, since, hold FROM permit INDEXED BY permit_gate"
    " WHERE gate = ? ORDER BY since, job LIMIT ?"
)
_PERMIT_COUNT = (
    "SELECT count(*), coalesce(sum(amount), 0) FROM permit INDEXED BY permit_gate WHERE gate = ?"
)
_PERMIT_SUMS = (
    "SELECT gate, sum(amount) FROM permit INDEXED BY permit_gate"
    " WHERE gate > ? GROUP BY gate ORDER BY gate LIMIT ?"
)
_PERMITS = (
    "SELECT gate, job, run, pool, amount, since, hold FROM permit INDEXED BY permit_gate"
    " WHERE gate >= ?1 AND (gate > ?1 OR job > ?2) ORDER BY gate, job LIMIT ?3"
)


class SqlitePermits(SqliteTable):
    """See `PermitTable`."""

    def add(self, rows: Sequence[PermitRow]) -> None:
        self._db.executemany(_ADD_PERMIT, rows)

    def of_jobs(self, jobs: Iterable[str]) -> list[PermitRow]:
        wanted = tuple(jobs)
        if not wanted:
            return []
        return list(map(PermitRow._make, self._db.execute(_PERMITS_OF_JOBS, (text_list(wanted),))))

    def remove(self, rows: Sequence[PermitRow]) -> None:
        jobs: dict[str, list[str]] = {}
        for row in rows:
            jobs.setdefault(row.gate, []).append(row.job)
        for gate, held in jobs.items():
            self._db.execute(_REMOVE_PERMITS, (text_list(held), gate))

    def remove_all(self, jobs: Iterable[str]) -> list[ReturnedPermits]:
        return amounts_of(self._db.execute(_REMOVE_ALL, (text_list(tuple(jobs)),)))

    def at(self, gates: Sequence[str], limit: int) -> dict[str, Holders]:
        found: dict[str, Holders] = {}
        for gate in gates:
            count, amount = self._db.execute(_PERMIT_COUNT, (gate,)).get
            first = (
                map(PermitRow._make, self._db.execute(_PERMITS_AT, (gate, limit))) if count else ()
            )
            found[gate] = Holders(count, amount, list(first))
        return found

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        return self._db.execute(_PERMIT_SUMS, (after, limit)).fetchall()

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        return list(map(PermitRow._make, self._db.execute(_PERMITS, (*after, limit))))


_ADD_START = (
    "INSERT INTO start VALUES (?, ?, ?) ON CONFLICT (gate, at) DO UPDATE SET n = n + excluded.n"
)
_PUT_START = (
    "INSERT INTO start VALUES (?, ?, ?) ON CONFLICT (gate, at) DO UPDATE SET n = excluded.n"
)
_STARTS_UNTIL = "SELECT coalesce(sum(n), 0) FROM start WHERE gate = ? AND at <= ?"
_TRIM_STARTS = "DELETE FROM start WHERE gate = ? AND at <= ?"
_STARTS_AFTER = "SELECT coalesce(sum(n), 0) FROM start WHERE gate = ? AND at > ?"
_OLDEST_STARTS = "SELECT at, n FROM start WHERE gate = ? AND at > ? ORDER BY at LIMIT ?"


class SqliteStarts(SqliteTable):
    """See `StartTable`."""

    def add(self, counts: Mapping[str, int]) -> None:
        now = self._session.now
        self._db.executemany(_ADD_START, [(gate, now, n) for gate, n in counts.items()])

    def put(self, gate: str, moments: Mapping[int, int]) -> None:
        self._db.executemany(_PUT_START, [(gate, at, n) for at, n in moments.items()])

    def trim(self, gate: str, until_at: int) -> int:
        gone: int = self._db.execute(_STARTS_UNTIL, (gate, until_at)).get
        if gone:
            self._db.execute(_TRIM_STARTS, (gate, until_at))
        return gone

    def total(self, gate: str, after_at: int, stored: int) -> int:
        del stored
        return self._db.execute(_STARTS_AFTER, (gate, after_at)).get

    def oldest(self, gate: str, after_at: int, limit: int) -> list[tuple[int, int]]:
        return self._db.execute(_OLDEST_STARTS, (gate, after_at, limit)).fetchall()
