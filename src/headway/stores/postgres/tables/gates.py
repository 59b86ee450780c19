"""The tables of what is declared, and of each gate of which there is something to remember."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headway.stores.ledger.columns.gates import GATE, encode_rest, read_gate, read_templates
from headway.stores.ledger.gatenames import is_implicit
from headway.stores.ledger.gaterows import GateRow, TemplateRow
from headway.stores.ledger.packing import encode, encode_gate_spec
from headway.stores.postgres.arrays import Blobs, MaybeNumbers, Numbers, Texts
from headway.stores.postgres.mode import Mode, NeedsMore
from headway.stores.postgres.numbers import DEFINITIONS
from headway.stores.postgres.session import Session
from headway.stores.postgres.shared import Templates
from headway.stores.postgres.statement import Ask, Rows, Tell, of

_TEMPLATES = Ask("SELECT name, spec, override FROM @template ORDER BY name", of("template"))
_SAVE_TEMPLATE = Tell(
    "INSERT INTO @template VALUES ($1, $2, $3::bytea) ON CONFLICT (name) DO UPDATE"
    " SET spec = excluded.spec, override = excluded.override",
    of("template"),
)
# As a worker's, a gate's row is replaced by one with a higher number, which is looked at first. So
# the row of a gate that every job passes stays when it is idle: without one, a look would walk over
# all dead rows to find none. An idle row is treated as no row.
_UNUSED = "used = 0 AND timer_at IS NULL AND horizon_at IS NULL"
_IDLE = f"{_UNUSED} AND rest IS NULL"
_LANES = ("lane",)
_OPEN = (encode_rest(GateRow(name="", template="", lanes=_LANES)) or b"").partition(encode(_LANES))[
    0
]
PASSES = (
    f"{_UNUSED} AND (rest IS NULL OR substr(rest, 1, {len(_OPEN)}) = '\\x{_OPEN.hex()}'::bytea)"
)
"""An implicit gate with this row limits nothing; it may keep which lanes once found it shut."""
LOAD = (
    "SELECT gate.* FROM unnest($1::text[]) AS wanted,"  # noqa: S608  (names only)
    f" LATERAL (SELECT {GATE} FROM @gate WHERE name = wanted"
    " ORDER BY no DESC LIMIT 1) AS gate"
)
QUIET = (
    "SELECT name FROM unnest($1::text[]) AS name WHERE NOT EXISTS"
    " (SELECT FROM @job WHERE state = 2 AND NOT unfit AND parked_at = name)"
)
_SAVE = Tell(
    "WITH new AS MATERIALIZED (SELECT new.*,"
    " (SELECT no FROM @gate WHERE gate.name = new.name ORDER BY no DESC LIMIT 1) AS no"
    " FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[],"
    " $7::bytea[]) AS new (name, template, pool, used, timer_at, horizon_at, rest)),"
    " gone AS (DELETE FROM @gate WHERE ctid = ANY (ARRAY("
    "SELECT one.ctid FROM new CROSS JOIN LATERAL"
    " (SELECT ctid FROM @gate WHERE gate.name = new.name AND gate.no = new.no LIMIT 1) AS one)))"
    " INSERT INTO @gate SELECT name, template, pool, used, timer_at, horizon_at, rest,"
    " coalesce(no, 0) + 1 FROM new",
    of("gate"),
)
_REMOVE = Tell(
    "DELETE FROM @gate WHERE ctid = ANY (ARRAY("
    "SELECT one.ctid FROM unnest($1::text[]) AS idle (name) CROSS JOIN LATERAL"
    " (SELECT ctid FROM @gate WHERE gate.name = idle.name ORDER BY no DESC LIMIT 1) AS one))",
    of("gate"),
)
_PAGE = Ask(
    f"SELECT {GATE} FROM @gate WHERE name > $1 AND NOT ({_IDLE})"  # noqa: S608  (names only)
    " ORDER BY name LIMIT $2",
    of("gate"),
)
_DUE_TIMERS = Ask(
    "SELECT name FROM @gate WHERE timer_at <= @now AND timer_at IS NOT NULL"
    " ORDER BY timer_at, name LIMIT $1",
    of("gate"),
    ahead=True,
)
_NEXT_TIMER = Ask(
    "SELECT timer_at FROM @gate WHERE timer_at IS NOT NULL ORDER BY timer_at LIMIT 1",
    of("gate"),
    ahead=True,
)
_SHORT_HORIZONS = Ask(
    f"SELECT {GATE} FROM @gate"  # noqa: S608  (names only)
    " WHERE horizon_at < @now + $1 AND horizon_at IS NOT NULL ORDER BY horizon_at, name LIMIT $2",
    of("gate"),
    ahead=True,
)


class PostgresGates:
    """Gates by name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def templates(self) -> Mapping[str, TemplateRow]:
        session = self._session
        version, known = session.number(DEFINITIONS), session.shared.templates
        if known is not None and known.version == version and not session.defined:
            return known.rows
        rows = read_templates(session.ask(_TEMPLATES))
        if session.learns:
            session.shared.templates = Templates(version, rows)
        return rows

    def save_template(self, row: TemplateRow) -> None:
        session = self._session
        spec, override = encode_gate_spec(row.spec), encode_gate_spec(row.override)
        session.tell(_SAVE_TEMPLATE, row.spec.name, spec, override)
        session.put(DEFINITIONS, session.number(DEFINITIONS) + 1)
        session.defined = True

    def load(self, names: Iterable[str]) -> dict[str, GateRow]:
        wanted = tuple(names)
        session = self._session
        known = session.gates
        missing = [name for name in wanted if name not in known]
        if missing:
            if session.mode is Mode.BLIND:
                return self._known_hours(wanted)
            self._fetch(missing)
        if session.mode in {Mode.INSERT, Mode.GUEST} and any(
            known[name] is None for name in wanted
        ):
            # Hours that are new: their row is one that others look at.
            raise NeedsMore
        session.looked_at.update(dict.fromkeys(wanted))
        return {name: row.clone() for name in wanted if (row := known[name]) is not None}

    def _known_hours(self, names: Iterable[str]) -> dict[str, GateRow]:
        hours = self._session.shared.hours
        found = {name: hours[name].clone() for name in names if name in hours}
        # Whatever is not known is asked for, which ends this look.
        return found or {
            row[0]: read_gate(row) for row in self._session.fetch(LOAD, (Texts(names),))
        }

    def _fetch(self, names: list[str]) -> None:
        bound = Texts(names)
        keyed = Texts(name for name in names if not is_implicit(name))
        if keyed:
            rows, quiet = self._session.fetch_all([(LOAD, (bound,)), (QUIET, (keyed,))])
        else:
            rows, quiet = self._session.fetch(LOAD, (bound,)), []
        take_gates(self._session, names, rows, quiet)

    def save(self, rows: Iterable[GateRow]) -> None:
        session = self._session
        session.need_turn()
        kept: list[GateRow] = []
        idle: list[str] = []
        for row in rows:
            session.gates[row.name] = None if row.idle() else row.clone()
            if not row.idle():
                kept.append(row)
            elif "{" in row.template:
                idle.append(row.name)
            else:
                kept.append(replace(row, closed_by="", closed_reason="", zone=None, opens=()))
        if kept:
            session.tell(_SAVE, *_columns(kept))
        if idle:
            session.tell(_REMOVE, Texts(idle))

    def page(self, after: str, limit: int) -> list[GateRow]:
        return [read_gate(row) for row in self._session.ask(_PAGE, after, limit)]

    def due_timers(self, limit: int) -> list[str]:
        return [name for (name,) in self._session.ask(_DUE_TIMERS, limit)]

    def next_timer(self) -> int | None:
        rows = self._session.ask(_NEXT_TIMER)
        return rows[0][0] if rows else None

    def short_horizons(self, before_at: int, limit: int) -> list[GateRow]:
        # By how much ahead is what the next step asks, too.
        ahead_ms = before_at - self._session.now
        return [read_gate(row) for row in self._session.ask(_SHORT_HORIZONS, ahead_ms, limit)]


def take_gates(session: Session, names: Iterable[str], rows: Rows, quiet: Rows) -> None:
    """Remember for the step what was found of gates.

    Args:
        rows: those that have a row.
        quiet: those at which nothing is parked.
    """
    known = session.gates
    known.update(dict.fromkeys(names))
    for kept in rows:
        row = read_gate(kept)
        known[row.name] = None if row.idle() else row
        if row.horizon_at is not None and session.learns:
            session.shared.hours[row.name] = row
    session.quiet.update(name for (name,) in quiet)


def _columns(rows: list[GateRow]) -> tuple[Texts | Numbers | MaybeNumbers | Blobs, ...]:
    return (
        Texts(row.name for row in rows),
        Texts(row.template for row in rows),
        Texts(row.pool for row in rows),
        Numbers(row.used for row in rows),
        MaybeNumbers(row.timer_at for row in rows),
        MaybeNumbers(row.horizon_at for row in rows),
        Blobs(encode_rest(row) for row in rows),
    )
