"""The tables of declared gates, their instances, permits and starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import msgspec

from headway.core.gates.spec import implicit_gates, is_implicit
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
from headway.stores.ledger.packing import encode, encode_some
from headway.stores.postgres.arrays import Blobs, Ids, MaybeNumbers, Numbers, Texts, ids_of
from headway.stores.postgres.session import Session
from headway.stores.postgres.shared import CachedTemplates
from headway.stores.postgres.statement import Each, Mode, NeedsMore
from headway.stores.postgres.tables.records import OF_KNOWN
from headway.stores.sql.statement import DEFINITIONS, Rows, Select, SqlTable, Write, of

_TEMPLATES = Select("SELECT name, spec, override FROM @template ORDER BY name", of("template"))
_SAVE_TEMPLATE = Write(
    "INSERT INTO @template VALUES ($1, $2, $3::bytea) ON CONFLICT (name) DO UPDATE"
    " SET spec = excluded.spec, override = excluded.override",
    of("template"),
)
# Like a worker's row, a gate's row is replaced by one with a higher number, which is read first.
# The row of a gate without placeholders is kept when it is idle: without it, a read would scan all
# dead rows to find none. An idle row is treated as no row.
_UNUSED = "used = 0 AND timer_at IS NULL AND horizon_at IS NULL"
_IDLE = f"{_UNUSED} AND rest IS NULL"
_LANES = ("lane",)
_OPEN = (encode_gate_rest(GateRow(name="", template="", lanes=_LANES)) or b"").partition(
    encode(_LANES)
)[0]
PASSES = (
    f"{_UNUSED} AND (rest IS NULL OR substr(rest, 1, {len(_OPEN)}) = '\\x{_OPEN.hex()}'::bytea)"
)
"""Condition that an implicit gate limits nothing; its row may still list lanes it once blocked."""
LOAD = (
    "SELECT gate.* FROM unnest($1::text[]) AS wanted,"  # noqa: S608  (names only)
    f" LATERAL (SELECT {GATE} FROM @gate WHERE name = wanted"
    " ORDER BY no DESC LIMIT 1) AS gate"
)
_SAVE = Write(
    """
WITH new AS MATERIALIZED (
    SELECT
        new.*,
        (SELECT no FROM @gate WHERE gate.name = new.name ORDER BY no DESC LIMIT 1) AS no
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[],
        $7::bytea[]) AS new (name, template, pool, used, timer_at, horizon_at, rest)),
gone AS (
    DELETE FROM @gate WHERE ctid = ANY (ARRAY(
        SELECT one.ctid FROM new
        CROSS JOIN LATERAL (
            SELECT ctid FROM @gate WHERE gate.name = new.name AND gate.no = new.no
            LIMIT 1) AS one)))
INSERT INTO @gate
SELECT name, template, pool, used, timer_at, horizon_at, rest, coalesce(no, 0) + 1 FROM new
""",
    of("gate"),
)
_REMOVE = Write(
    "DELETE FROM @gate WHERE ctid = ANY (ARRAY("
    "SELECT one.ctid FROM unnest($1::text[]) AS idle (name) CROSS JOIN LATERAL"
    " (SELECT ctid FROM @gate WHERE gate.name = idle.name ORDER BY no DESC LIMIT 1) AS one))",
    of("gate"),
)
_SAVE_TIMED = Write(_SAVE.text, of("gate", "timer"))
_REMOVE_TIMED = Write(_REMOVE.text, of("gate", "timer"))
_PAGE = Select(
    f"SELECT {GATE} FROM @gate WHERE name > $1 AND NOT ({_IDLE})"  # noqa: S608  (names only)
    " ORDER BY name LIMIT $2",
    of("gate"),
)
_DUE_TIMERS = Select(
    "SELECT name FROM @gate WHERE timer_at <= @now AND timer_at IS NOT NULL"
    " ORDER BY timer_at, name LIMIT $1",
    of("timer"),
    ahead=True,
)
_NEXT_TIMER = Select(
    "SELECT timer_at FROM @gate WHERE timer_at IS NOT NULL ORDER BY timer_at LIMIT 1",
    of("timer"),
    ahead=True,
)
_SHORT_HORIZONS = Select(
    f"SELECT {GATE} FROM @gate"  # noqa: S608  (names only)
    " WHERE horizon_at < @now + $1 AND horizon_at IS NOT NULL ORDER BY horizon_at, name LIMIT $2",
    of("gate"),
    ahead=True,
)


class PostgresGates(SqlTable[Session]):
    """See `GateTable`."""

    def templates(self) -> GateTemplates:
        session = self._session
        version, known = session.number(DEFINITIONS), session.shared.templates
        if known is not None and known.version == version and not session.defined:
            return known.rows
        rows = read_templates(session.select(_TEMPLATES))
        if session.may_cache:
            session.shared.templates = CachedTemplates.of_rows(version, rows)
        return rows

    def save_template(self, row: TemplateRow) -> None:
        session = self._session
        spec, override = encode_some(row.spec), encode_some(row.override)
        session.write(_SAVE_TEMPLATE, row.spec.name, spec, override)
        session.put(DEFINITIONS, session.number(DEFINITIONS) + 1)
        session.defined = True

    def load(self, names: Iterable[str]) -> dict[str, GateRow]:
        wanted = tuple(names)
        session = self._session
        known = session.cache.gates
        missing = [name for name in wanted if name not in known]
        if missing:
            if session.mode is Mode.BLIND:
                return self._known_hours(wanted)
            if len(session.cache.lanes_asked) > 1 and any(map(is_implicit, missing)):
                # The other lanes of a claim need theirs next.
                later = (name for name in self._names_of_flows() if name not in known)
                missing = list(dict.fromkeys([*missing, *later]))
            take_gates(session, missing, session.fetch(LOAD, (Texts(missing),)))
        if session.mode in {Mode.INSERT, Mode.CALLER} and any(
            known[name] is None for name in wanted
        ):
            # New hours need an exclusive step, because other steps read their row.
            raise NeedsMore
        session.cache.gates_read.update(dict.fromkeys(wanted))
        return {name: row.clone() for name in wanted if (row := known[name]) is not None}

    def _names_of_flows(self) -> Iterator[str]:
        """Yield the names of the gates of the flows that this step has found."""
        session = self._session
        flows = [*chain.from_iterable(session.cache.flows_by_lane().values())]
        session.flows.read(flows)
        for flow in flows:
            key = session.flows.value(flow)
            yield from implicit_gates(key.lane, key.tenant, key.kind)
            yield from (use.name for use in key.shared)

    def _known_hours(self, names: Iterable[str]) -> dict[str, GateRow]:
        hours = self._session.shared.hours
        found = {name: hours[name].clone() for name in names if name in hours}
        # If none is known, the fetch raises NeedsMore in a blind step.
        return found or {
            row[0]: read_gate(row) for row in self._session.fetch(LOAD, (Texts(names),))
        }

    def save(self, rows: Iterable[GateRow]) -> None:
        session = self._session
        session.need_exclusive()
        kept: list[GateRow] = []
        idle: list[str] = []
        changed = list(rows)
        timed = not self._keeps_timers(changed)
        for row in changed:
            session.cache.gates[row.name] = None if row.idle() else row.clone()
            if not row.idle():
                kept.append(row)
            elif "{" in row.template:
                idle.append(row.name)
            else:
                kept.append(
                    msgspec.structs.replace(
                        row, closed_by="", closed_reason="", zone=None, opens=()
                    )
                )
        if kept:
            session.write(_SAVE_TIMED if timed else _SAVE, *_columns(kept))
        if idle:
            session.write(_REMOVE_TIMED if timed else _REMOVE, Texts(idle))

    def page(self, after: str, limit: int) -> list[GateRow]:
        return [read_gate(row) for row in self._session.select(_PAGE, after, limit)]

    def due_timers(self, limit: int) -> list[str]:
        return [name for (name,) in self._session.select(_DUE_TIMERS, limit)]

    def _keeps_timers(self, changed: Sequence[GateRow]) -> bool:
        """Return whether no timer changes, so that cached timers stay valid."""
        known = self._session.cache.gates
        if any(row.name not in known for row in changed):
            return False
        before = [known[row.name] for row in changed]
        timers = [None if row is None else row.timer_at for row in before]
        return timers == [row.timer_at for row in changed]

    def next_timer(self) -> int | None:
        rows = self._session.select(_NEXT_TIMER)
        return rows[0][0] if rows else None

    def short_horizons(self, before_at: int, limit: int) -> list[GateRow]:
        # Bound to the difference, which the next step's query has in common.
        ahead_ms = before_at - self._session.now
        return [read_gate(row) for row in self._session.select(_SHORT_HORIZONS, ahead_ms, limit)]


def take_gates(session: Session, names: Iterable[str], rows: Rows) -> None:
    """Cache the rows of gates for the step."""
    known = session.cache.gates
    known.update(dict.fromkeys(names))
    for kept in rows:
        row = read_gate(kept)
        known[row.name] = None if row.idle() else row
        if row.horizon_at is not None and session.may_cache:
            session.shared.hours[row.name] = row


def _columns(rows: list[GateRow]) -> tuple[Texts | Numbers | MaybeNumbers | Blobs, ...]:
    return (
        Texts(row.name for row in rows),
        Texts(row.template for row in rows),
        Texts(row.pool for row in rows),
        Numbers(row.used for row in rows),
        MaybeNumbers(row.timer_at for row in rows),
        MaybeNumbers(row.horizon_at for row in rows),
        Blobs(encode_gate_rest(row) for row in rows),
    )


_PERMIT = "gate, job::text, run, pool, amount, since, hold"
_ADD_PERMITS = Write(
    "INSERT INTO @permit (gate, job, run, pool, amount, since, hold) SELECT * FROM unnest("
    "$1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])",
    of("permit"),
)
_PERMITS_OF = f"SELECT {_PERMIT} FROM @permit AS p WHERE job {{}} ORDER BY p.job, gate"  # noqa: S608  (names only)
PERMITS_OF_JOBS = Each(_PERMITS_OF.format("= ANY ($1)"), of("permit"), ids_of, 1)
PERMITS_OF_KNOWN = _PERMITS_OF.format(f"= ANY (ARRAY({OF_KNOWN}))")
HELD = (
    # In the order of the primary key; otherwise the whole index of gates might be read.
    "SELECT DISTINCT name FROM (SELECT gate, pool FROM @permit AS p"  # noqa: S608  (names only)
    f" WHERE job = ANY (ARRAY({OF_KNOWN}) || $2::uuid[]) ORDER BY p.job, gate) AS held"
    " CROSS JOIN LATERAL unnest(ARRAY[gate, pool]) AS one (name) WHERE name <> ''"
)
"""The gates at which jobs, given by keys or by ids, hold permits."""
LOAD_HELD = LOAD.replace("$1::text[]", f"ARRAY({HELD})")
_REMOVE_PERMITS = Write(
    # A range condition that only the primary key supports. With statistics from when the table was
    # empty, the index of gates looks equally good, but it would scan all holders of a gate.
    "DELETE FROM @permit WHERE ctid = ANY (ARRAY(SELECT one.ctid"
    " FROM unnest($1::uuid[], $2::text[]) AS gone (job, gate) CROSS JOIN LATERAL"
    " (SELECT p.ctid, p.job, p.gate FROM @permit AS p"
    " WHERE (p.job, p.gate) >= (gone.job, gone.gate)"
    " ORDER BY p.job, p.gate LIMIT 1) AS one WHERE one.job = gone.job AND one.gate = gone.gate))",
    of("permit"),
)
_REMOVE_ALL = Write(
    # Ordered for the same reason: only the primary key has this order.
    "DELETE FROM @permit WHERE ctid = ANY (ARRAY(SELECT p.ctid FROM @permit AS p"
    " WHERE p.job = ANY ($1) ORDER BY p.job, p.gate))",
    of("permit"),
)
_FIRST_PERMITS = Select(
    "SELECT one.* FROM unnest($1::text[]) AS want (name) CROSS JOIN LATERAL"  # noqa: S608  (names only)
    f" (SELECT {_PERMIT} FROM @permit AS p WHERE gate = want.name"
    " ORDER BY since, p.job LIMIT $2) AS one ORDER BY one.since, one.job",
    of("permit"),
)
_PERMIT_COUNTS = Select(
    "SELECT want.name, one.* FROM unnest($1::text[]) AS want (name) CROSS JOIN LATERAL"
    " (SELECT count(*), coalesce(sum(amount), 0)::bigint FROM @permit WHERE gate = want.name)"
    " AS one",
    of("permit"),
)
_PERMIT_SUMS = Select(
    "SELECT gate, sum(amount)::bigint FROM @permit WHERE gate > $1"
    " GROUP BY gate ORDER BY gate LIMIT $2",
    of("permit"),
)
_PERMITS = Select(
    f"SELECT {_PERMIT} FROM @permit AS p"  # noqa: S608  (names only)
    " WHERE gate >= $1 AND (gate > $1 OR p.job > $2::uuid) ORDER BY gate, p.job LIMIT $3",
    of("permit"),
)
_NO_JOB = "00000000-0000-0000-0000-000000000000"


class PostgresPermits(SqlTable[Session]):
    """Permits; a job holds at most one per gate."""

    def add(self, rows: Sequence[PermitRow]) -> None:
        if not rows:
            return
        gates, jobs, runs, pools, amounts, moments, holds = zip(*rows, strict=True)
        self._session.write(
            _ADD_PERMITS,
            Texts(gates),
            Ids(jobs),
            Numbers(runs),
            Texts(pools),
            Numbers(amounts),
            Numbers(moments),
            Texts(holds),
        )

    def of_jobs(self, jobs: Iterable[str]) -> list[PermitRow]:
        wanted = sorted(ids_of(jobs))
        if not wanted:
            return []
        found = self._session.each(PERMITS_OF_JOBS, wanted)
        return [PermitRow._make(row) for one in wanted for row in found[one]]

    def remove(self, rows: Sequence[PermitRow]) -> None:
        if not rows:
            return
        session = self._session
        bound = Ids(row.job for row in rows), Texts(row.gate for row in rows)
        session.write(_REMOVE_PERMITS, *bound, patched=(PERMITS_OF_JOBS,))
        known = session.cache.each(PERMITS_OF_JOBS)
        for row in rows:
            if row.job in known:
                known[row.job] = [one for one in known[row.job] if one[0] != row.gate]

    def remove_all(self, jobs: Iterable[str]) -> list[ReturnedPermits]:
        session, wanted = self._session, ids_of(jobs)
        found = session.each(PERMITS_OF_JOBS, wanted)
        holding = [job for job in wanted if found[job]]
        if not holding:
            return []
        returned = amounts_of((row[0], row[3], row[4]) for job in holding for row in found[job])
        session.write(_REMOVE_ALL, Ids(holding), patched=(PERMITS_OF_JOBS,))
        session.cache.each(PERMITS_OF_JOBS).update({job: [] for job in holding})
        return returned

    def at(self, gates: Sequence[str], limit: int) -> dict[str, Holders]:
        if not gates:
            return {}
        counts = self._session.select(_PERMIT_COUNTS, Texts(gates))
        held = Texts(gate for gate, count, _ in counts if count)
        first: dict[str, list[PermitRow]] = {}
        for row in (
            _permits(self._session.select(_FIRST_PERMITS, held, limit)) if held and limit else ()
        ):
            first.setdefault(row.gate, []).append(row)
        return {gate: Holders(n, amount, first.get(gate, ())) for gate, n, amount in counts}

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        return [(gate, n) for gate, n in self._session.select(_PERMIT_SUMS, after, limit)]

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        gate, job = after
        return _permits(self._session.select(_PERMITS, gate, job or _NO_JOB, limit))


def _permits(rows: Rows) -> list[PermitRow]:
    return list(map(PermitRow._make, rows))


_ADD_STARTS = Write(
    # At the time recorded in the jobs' runs: a claim may start jobs created after its time.
    "INSERT INTO @start AS start SELECT gate,"
    " greatest(@now, (SELECT max(claimed_at) FROM @job WHERE seq = ANY ($3))), n"
    " FROM unnest($1::text[], $2::bigint[]) AS one (gate, n)"
    " ON CONFLICT (gate, at) DO UPDATE SET n = start.n + excluded.n",
    of("start"),
)
_PUT_STARTS = Write(
    "INSERT INTO @start SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])"
    " ON CONFLICT (gate, at) DO UPDATE SET n = excluded.n",
    of("start"),
)
_START_TOTALS = (
    "SELECT gate, coalesce(sum(n) FILTER (WHERE at <= $2), 0)::bigint,"
    " coalesce(sum(n) FILTER (WHERE at > $2), 0)::bigint"
    " FROM @start WHERE gate = ANY ($1) GROUP BY gate"
)
_TRIM_STARTS = Write(
    # By the index for each gate, whatever the table's statistics say.
    "DELETE FROM @start WHERE ctid = ANY (ARRAY(SELECT one.ctid"
    " FROM unnest($1::text[], $2::bigint[]) AS old (gate, until_at) CROSS JOIN LATERAL"
    " (SELECT s.ctid FROM @start AS s WHERE s.gate = old.gate AND s.at <= old.until_at"
    " ORDER BY s.gate, s.at) AS one))",
    of("start"),
)
_OLDEST_STARTS = (
    "SELECT gate.name, first.at, first.n FROM unnest($1::text[]) AS gate (name) CROSS JOIN LATERAL"
    " (SELECT at, n FROM @start AS s WHERE s.gate = gate.name AND s.at > $2"
    " ORDER BY s.at LIMIT $3) AS first"
)


Key = TypeVar("Key")
Value = TypeVar("Value")


class PostgresStarts(SqlTable[Session]):
    """Counts of starts by gate and millisecond."""

    def add(self, counts: Mapping[str, int]) -> None:
        session = self._session
        started = Numbers(session.cache.gone)
        session.write(_ADD_STARTS, Texts(counts), Numbers(counts.values()), started)
        _forget(session, counts)

    def put(self, gate: str, moments: Mapping[int, int]) -> None:
        session = self._session
        session.write(_PUT_STARTS, gate, Numbers(moments), Numbers(moments.values()))
        _forget(session, (gate,))

    def trim(self, gate: str, until_at: int) -> int:
        session = self._session
        gone, left = self._totals(gate, until_at)
        if gone:
            session.gather(_TRIM_STARTS, gate, (gate, until_at), _trimmed)
            _forget(session, (gate,))
            session.cache.totals[gate] = {until_at: (0, left)}
        return gone

    def total(self, gate: str, after_at: int, stored: int) -> int:
        del stored
        return self._totals(gate, after_at)[1]

    def _totals(self, gate: str, at: int) -> tuple[int, int]:
        totals = self._session.cache.totals
        if at not in totals.get(gate, ()):
            self._read(gate, at)
        return totals[gate][at]

    def _read(self, gate: str, at: int) -> None:
        """Read the sums of a rate, and of cached rates of the same declaration."""
        session, totals = self._session, self._session.cache.totals
        alike = self._alike(gate, totals, at)
        for name, gone, left in session.fetch(_START_TOTALS, (Texts(alike), at)):
            totals[name][at] = (gone, left)
        for name in alike:
            totals[name].setdefault(at, (0, 0))

    def oldest(self, gate: str, after_at: int, limit: int) -> list[tuple[int, int]]:
        asked = after_at, limit
        session, oldest = self._session, self._session.cache.oldest_starts
        if asked not in oldest.get(gate, ()):
            # Of each rate of the same declaration: a claim may park jobs at many of them.
            alike = self._alike(gate, oldest, asked)
            for name, *start in session.fetch(_OLDEST_STARTS, (Texts(alike), *asked)):
                oldest[name].setdefault(asked, []).append(tuple(start))
            for name in alike:
                oldest[name].setdefault(asked, [])
        return oldest[gate][asked]

    def _alike(self, gate: str, known: dict[str, dict[Key, Value]], key: Key) -> list[str]:
        """Return a rate, and cached rates of the same declaration, of which `key` is not known."""
        gates = self._session.cache.gates
        row = gates.get(gate)
        alike = [gate]
        if row is not None:
            alike += [
                name
                for name, one in gates.items()
                if one is not None
                and one.used
                and one.template == row.template
                and name != gate
                and key not in known.get(name, ())
            ]
        for name in alike:
            known.setdefault(name, {})
        return alike


def _forget(session: Session, gates: Iterable[str]) -> None:
    for gate in gates:
        session.cache.totals.pop(gate, None)
        session.cache.oldest_starts.pop(gate, None)


def _trimmed(rows: list[tuple[str, int]]) -> tuple[Texts, Numbers]:
    gates, moments = zip(*rows, strict=True)
    return Texts(gates), Numbers(moments)
