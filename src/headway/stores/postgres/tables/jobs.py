"""The table of jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from headway.core.flow import Head, Order
from headway.core.state import QUEUED, State
from headway.stores.ledger.columns import STATES, order_of, read_heads, read_job
from headway.stores.ledger.insert import FIRST_PART
from headway.stores.ledger.packing import decoder, encode, encode_cascade, encode_some
from headway.stores.ledger.rows import (
    DueFire,
    Finished,
    GatedStart,
    HeldRow,
    JobRow,
    RunRow,
)
from headway.stores.postgres.arrays import Blobs, Flags, Ids, MaybeNumbers, Numbers, Texts, ids_of
from headway.stores.postgres.registry import digest
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Mode
from headway.stores.postgres.tables import job_statements as sql
from headway.stores.postgres.tables.job_heads import flows_bound, heads_read, take_heads
from headway.stores.postgres.tables.records import storable
from headway.stores.sql.jobs import NEW, SAVED, SqlJobs, new_columns, saved_values
from headway.stores.sql.statement import Row, Rows, Select

TOGETHER = 256
"""Number of flows whose heads are read together."""
FEW_HEADS = 16
"""Most heads that are read of a flow of another lane."""
_LISTS = {"uuid": Ids, "bigint": Numbers, "boolean": Flags, "text": Texts, "bytea": Blobs}
_decode_run = decoder(RunRow)
_STATE, _DUE = attrgetter("state"), attrgetter("due_at")


class PostgresJobs(SqlJobs[Session]):
    """See `JobTable`."""

    queries = sql.LISTINGS

    def _rows(self, found: Rows) -> list[JobRow]:
        session = self._session
        session.flows.read(row[3] for row in found)
        session.words.read(one for row in found for one in row[12:14] if one is not None)
        flow_of, word_of = session.flows.value, session.words.value
        return [read_job(row, flow_of, word_of) for row in found]

    def _moved(self) -> None:
        """Drop cached heads."""
        session = self._session
        session.cache.heads.clear()
        session.cache.lanes_asked = dict.fromkeys(session.cache.lanes_asked)

    def _leave(self, seqs: Sequence[int]) -> None:
        """Remove jobs that no longer wait, and record the places before which no job waits."""
        session = self._session
        gone, asked = session.cache.gone, session.cache.lanes_asked
        gone.update(seqs)
        session.cache.parked.leave(seqs)
        for flow, (most, rows) in session.cache.heads.items():
            left = [row for row in rows if row[2] in gone]
            if not left:
                continue
            # What was read of this flow and of others stays: a claim starts jobs in many.
            rest = [row for row in rows if row[2] not in gone]
            session.cache.heads[flow] = (most if len(rows) < most else len(rest), rest)
            floors: dict[int, tuple[int, int]] = {}
            for row in rows:
                # Up to the first job that stays, or the last of all.
                floors[row[0]] = (row[1], row[2])
                if row[2] not in gone:
                    break
            started = session.cache.new_marks.get(flow, ({}, 0))[1] + len(left)
            session.cache.new_marks[flow] = (floors, started)
            lane = session.flows.value(flow).lane
            asked.update((one, None) for one in asked if one[0] == lane)

    def _wait_behind(self, flow: int, priority: int, due_at: int, seq: int) -> bool:
        """Record that a job waits that may precede others; return whether it precedes a mark."""
        session = self._session
        if session.mode is not Mode.EXCLUSIVE:
            session.queued.append((flow, priority, due_at, seq))
            return False
        session.behind = True
        session.lowered += 1
        return session.shared.marks.lower(flow, priority, due_at, seq)

    def insert(self, rows: Sequence[JobRow]) -> None:
        session = self._session
        self._moved()
        # A job that is due on arrival follows earlier ones.
        if min(map(_DUE, rows)) < session.now:
            for row in rows:
                if row.state is State.WAITING and row.due_at < session.now:
                    self._wait_behind(row.flow, row.priority, row.due_at, 0)
        columns = new_columns(rows, session.lanes.number)
        if not QUEUED.issuperset(map(_STATE, rows)):
            # Still one statement, so that they arrive in the order in which they are sent.
            ends = [(row.finished_at, row.purge_at, row.reason or None) for row in rows]
            session.write(sql.INSERT_FINAL, *_packed(sql.FINAL, (*columns, *_columns(ends))))
        elif len(rows) == 1:
            session.write(sql.INSERT_ONE, *chain.from_iterable(columns))
        else:
            differing = _differing(columns)
            listed, insert = next(one for one in sql.INSERTS if one[0] >= differing)
            session.write(insert, *_packed(NEW, columns, listed))
        if len(rows) >= FIRST_PART:
            session.send_ahead()

    def known(self, ids: Sequence[str]) -> set[str]:
        if self._session.mode is Mode.BLIND or not ids:
            return set()
        return {one for (one,) in self._session.select(sql.KNOWN_IDS, ids_of(ids))}

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        wanted = ids_of(ids)
        if not wanted:
            return {}
        found = self._session.each(sql.JOBS, wanted)
        return {row.id: row for row in self._rows([row for one in wanted for row in found[one]])}

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        return self._rows(self._session.select(sql.ARRIVED, after, limit))

    def save(self, rows: Iterable[JobRow]) -> None:
        changed = list(rows)
        if changed:
            self._moved()
            values = [saved_values(row, self._session.words.number) for row in changed]
            ids = Ids(row.id for row in changed)
            self._session.write(sql.SAVE, ids, *_packed(SAVED, _columns(values)))
            self._session.cache.parked.leave(row.seq for row in changed)
            for row in changed:
                if row.state is State.WAITING:
                    self._wait_behind(row.flow, row.priority, row.due_at, row.seq)
                if row.parked_at is not None:
                    self._session.cache.none_parked.discard(row.parked_at)
                for gate in (row.parked_at, row.ticket):
                    if gate is not None:
                        self._session.cache.parked.forget(gate)

    def remove(self, ids: Sequence[str]) -> list[tuple[str, State]]:
        session, named = self._session, ids_of(ids)
        found = session.select(sql.SEQS, named) if named else []
        if not found:
            return []
        flow = session.flows.value
        keys = {
            digest(flow(number).tenant.encode(), key.encode()): one
            for _, one, key, number, _ in found
            if key is not None
        }
        gone = Numbers(row[0] for row in found)
        self._moved()
        session.write(sql.REMOVE_EVENTS, named)
        session.cache.kept_events = None
        session.write(sql.REMOVE_KNOWN, named)
        session.write(sql.REMOVE_RUNS, gone)
        session.write(sql.REMOVE, gone)
        if keys:
            session.write(sql.REMOVE_KEYS, Blobs(keys), Ids(keys.values()))
        return [(flow(number).lane, STATES[state]) for *_, number, state in found]

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        if not rows:
            return
        self._session.write(
            sql.ADD_RUNS,
            Ids(row.job for row in rows),
            Numbers(row.run for row in rows),
            Blobs(encode(row) for row in rows),
        )

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        found: dict[str, list[RunRow]] = {}
        wanted = ids_of(ids)
        known = self._session.each(sql.RUNS, wanted) if wanted else {}
        for one in wanted:
            if known[one]:
                found[one] = [_decode_run(body) for _, body in known[one]]
        return found

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        session = self._session
        asked = (lane, after, limit)
        rows = session.cache.lanes_asked.get(asked)
        if rows is None:
            rows = session.fetch(sql.FLOWS_WAITING, flows_bound(session, *asked))
            session.cache.lanes_asked[asked] = rows
        session.cache.found = [flow for (flow,) in rows]
        return session.cache.found

    def heads(self, flow: int, limit: int) -> list[Head]:
        return read_heads(self._head_rows(flow, limit)[:limit])

    def first_orders(self, flows: Sequence[int], limit: int) -> dict[int, Order]:
        found = {flow: self._head_rows(flow, limit) for flow in flows}
        return {flow: order_of(rows[0]) for flow, rows in found.items() if rows}

    def _head_rows(self, flow: int, limit: int) -> Rows:
        session = self._session
        session.cache.wanted[flow] = max(limit, session.cache.wanted.get(flow, 0))
        if self._lacks(flow, limit):
            self._read_heads(flow, limit)
        return session.cache.heads[flow][1]

    def _lacks(self, flow: int, limit: int) -> bool:
        """Return whether fewer heads of a flow are cached than requested, and there may be more."""
        most, rows = self._session.cache.heads.get(flow, (0, ()))
        return most < limit and len(rows) >= most

    def _read_heads(self, flow: int, limit: int) -> None:
        """Read the heads of a flow, and of the flows that will be read next."""
        session = self._session
        flows = [flow]
        if flow in session.cache.found:
            place = session.cache.found.index(flow) + 1
            others = session.cache.found[place : place + TOGETHER - 1]
            flows += [one for one in others if self._lacks(one, limit)]
        wanted = dict.fromkeys(flows, limit)
        # If lanes must be read one after another, twice as many flows of the next each time.
        listed = chain.from_iterable(rows for rows in session.cache.lanes_asked.values() if rows)
        later = (one for (one,) in listed if one not in session.cache.heads and one not in wanted)
        more = min(2**session.cache.heads_read, TOGETHER) - 1
        wanted.update(dict.fromkeys(islice(later, more), min(limit, FEW_HEADS)))
        session.cache.heads_read += 1
        read = heads_read(session, wanted)
        take_heads(session, read, session.fetch(sql.HEADS, read.bound))

    def start_plain(self, seqs: Sequence[int], worker: str, request: int) -> None:
        who = self._session.words.number(worker)
        self._leave(seqs)
        self._session.write(sql.START_PLAIN, Numbers(seqs), who, request)

    def start_gated(self, starts: Sequence[GatedStart], worker: str, request: int) -> None:
        who = self._session.words.number(worker)
        self._leave([start.seq for start in starts])
        self._session.write(
            sql.START_GATED,
            Numbers(start.seq for start in starts),
            who,
            request,
            Numbers(start.blocked_ms for start in starts),
            Blobs(encode_some(start.members) for start in starts),
            Texts(start.candidate or None for start in starts),
            Blobs(encode_cascade(start.cascade) for start in starts),
        )

    def finish_plain(self, worker: str, runs: Sequence[tuple[str, int]], purge_at: int) -> Finished:
        session = self._session
        ahead, rows = session.cache.finished, list[Row]()
        left: dict[int, list[str]] = {}
        for one, run in runs:
            if (worker, run, one) not in ahead:
                left.setdefault(run, []).append(one)
            elif (row := ahead[worker, run, one]) is not None:
                rows.append(row)
                ahead[worker, run, one] = None
        who = session.words.find(worker) if left else None
        if who is not None:
            keep_ms = purge_at - session.now
            for run, same in left.items():
                rows += session.do(sql.FINISH, ids_of(same), run, who, keep_ms)
        lane = session.lanes.value
        lanes = {one: lane(number) for one, number, _ in rows}
        return Finished([lanes.get(one) for one, _ in runs], any(row[2] for row in rows))

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        session = self._session
        who = session.words.known(worker)
        known = session.cache.each(sql.HELD_OF).get(who) if limit is not None and who else None
        if known is not None:
            rows = [row[1:] for row in known[:limit]]
        else:
            rows = session.select(sql.HELD_BY, worker.encode(), limit)
        return [
            HeldRow(one, run, request, STATES[state], cancel)
            for one, run, request, state, cancel in rows
        ]

    def held_counts(self, workers: Sequence[str]) -> dict[str, int]:
        numbers = self._session.words.numbers(workers)
        rows = self._session.select(sql.HELD_COUNTS, Numbers(numbers.values())) if numbers else ()
        counts = dict(rows)
        return {one: counts[number] for one, number in numbers.items()}

    def taken_by(self, worker: str, request: int) -> list[JobRow]:
        who = self._session.words.find(worker)
        return [] if who is None else self._rows(self._session.select(sql.TAKEN_BY, who, request))

    def held(self, after: str, limit: int) -> list[JobRow]:
        rows = self._session.select(sql.HELD_IDS, (*ids_of((after,)), sql.NO_JOB)[0], limit)
        return list(self.load(one for (one,) in rows).values())

    def promote_due(self, lanes: Sequence[str], limit: int) -> tuple[dict[str, int], list[DueFire]]:
        session = self._session
        if session.mode is not Mode.EXCLUSIVE:
            due_at = self.next_due(lanes)
            if due_at is not None and due_at <= session.now:
                session.need_exclusive()
            return {}, []
        rows = session.cache.promoted
        session.cache.promoted = None
        if rows is None:
            rows = session.do(sql.PROMOTE_DUE, Texts(lanes), limit, "", 1)
            self._moved()
        elif rows:
            session.wrote_ahead(sql.PROMOTE_DUE)
        counts: dict[str, int] = {}
        fires: list[DueFire] = []
        for *place, lane, job, entry in rows:
            if entry is None:
                counts[lane] = counts.get(lane, 0) + 1
                if self._wait_behind(*place):
                    # It precedes the place from which its flow was read.
                    self._moved()
            else:
                fires.append(DueFire(place[3], job, entry, place[2], lane))
        return counts, fires

    def promote(self, fires: Sequence[DueFire]) -> None:
        self._moved()
        for row in self._session.do(sql.PROMOTE, Numbers([fire.seq for fire in fires])):
            self._wait_behind(*row)

    def next_due(self, lanes: Sequence[str]) -> int | None:
        return self._next(sql.NEXT_DUE, Texts(lanes))

    def lanes_due(self, limit: int) -> list[str]:
        return [name for (name,) in self._session.select(sql.LANES_DUE, limit)]

    def expired(self, limit: int) -> list[str]:
        return [one for (one,) in self._session.select(sql.EXPIRED, limit)]

    def next_expiry(self) -> int | None:
        return self._next(sql.NEXT_EXPIRY)

    def deadlines(self, limit: int) -> list[str]:
        return [one for (one,) in self._session.select(sql.DEADLINES, limit)]

    def next_deadline(self) -> int | None:
        return self._next(sql.NEXT_DEADLINE)

    def purgeable(self, limit: int) -> list[str]:
        return [one for (one,) in self._session.select(sql.PURGEABLE, limit)]

    def of_entry(self, entry: str) -> list[JobRow]:
        return self._rows(self._session.select(sql.OF_ENTRY, entry))

    def _next(self, select: Select, *bound: Texts) -> int | None:
        rows = self._session.select(select, *bound)
        return rows[0][0] if rows else None

    def parked_flows(self, gate: str, after: int, limit: int) -> list[int]:
        if gate in self._session.cache.none_parked:
            return []
        known = self._session.cache.parked.flows(gate, after, limit)
        if known is not None:
            return known
        return [flow for (flow,) in self._session.select(sql.PARKED_FLOWS, gate, after, limit)]

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        if gate in self._session.cache.none_parked:
            return []
        known = self._session.cache.parked.heads(gate, flow, limit)
        if known is None:
            known = self._session.select(sql.PARKED_HEADS, gate, flow, limit)
        return read_heads(known)

    def parked_ids(self, gate: str, flows: Sequence[int], limit: int) -> dict[int, list[str]]:
        self._session.flows.read(flows)
        found: dict[int, list[str]] = {}
        for flow, one in self._session.select(sql.PARKED_IDS, gate, Numbers(flows), limit):
            found.setdefault(flow, []).append(one)
        return found

    def parked_order(self, gate: str, flow: int) -> Order | None:
        queue = sql.queue_of(gate, flow)
        rows = self._session.each(sql.FIRST_PARKED, (queue,))[queue]
        return Order._make(rows[0][1:]) if rows else None

    def parked_orders(self, gate: str, flows: Sequence[int]) -> dict[int, Order]:
        known = [self._session.cache.parked.heads(gate, flow, 1) for flow in flows]
        if all(rows is not None for rows in known):
            firsts = zip(flows, known, strict=True)
            return {flow: order_of(rows[0]) for flow, rows in firsts if rows}
        found = self._session.select(sql.PARKED_ORDERS, gate, Numbers(flows))
        return {flow: Order(*order) for flow, *order in found}

    def parked_counts(self, gates: Sequence[str], limit: int) -> dict[str, int]:
        rows = self._session.select(sql.PARKED_COUNTS, Texts(gates), limit) if gates else ()
        return {gate: min(limit, count) for gate, count in rows}

    def unfit_at(self, gate: str, most: int, limit: int) -> list[str]:
        rows = self._session.each(sql.UNFIT, (gate,))[gate][:limit]
        return [one for _, one, amount in rows if amount <= most]

    def parked_gates(self, after: str, limit: int) -> list[str]:
        return [gate for (gate,) in self._session.select(sql.PARKED_GATES, after, limit)]

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        known = self._session.cache.parked.tickets(gate, flow)
        if known is None:
            known = self._session.select(sql.TICKETS, gate, flow)
        return [(Order(priority, due_at, seq), amount) for priority, due_at, seq, amount in known]

    def feed(self, heads: Sequence[Head], gate: str, amounts: Sequence[int]) -> None:
        seqs = [head.order.seq for head in heads]
        self._moved()
        self._session.behind = True
        self._session.shared.marks.clear()
        for seq, amount in zip(seqs, amounts, strict=True):
            self._session.gather(sql.FEED, seq, (seq, gate, amount), _fed)
        self._session.cache.parked.feed(seqs, gate, amounts)

    def park(self, seqs: Sequence[int], gate: str, *, unfit: int) -> None:
        self._leave(seqs)
        self._session.cache.none_parked.discard(gate)
        self._session.cache.parked.forget(gate)
        self._session.write(sql.PARK, Numbers(seqs), gate, unfit)

    def place(self, flow: int, order: Order, limit: int) -> int:
        lane = self._session.lanes.find(self._session.flows.value(flow).lane)
        return self._session.select(sql.BEFORE, lane, flow, *order, limit)[0][0]

    def waiting_counts(self, lane: str, flows: Sequence[int], limit: int) -> dict[int, int]:
        number = self._session.lanes.find(lane)
        self._session.flows.read(flows)
        rows = self._session.select(sql.WAITING, number, Numbers(flows), limit) if flows else []
        return dict(rows)

    def oldest_due(self, lanes: Sequence[str]) -> dict[str, int]:
        numbers = self._session.lanes.numbers(lanes)
        rows = self._session.select(sql.OLDEST, Numbers(numbers.values())) if numbers else ()
        name_of = self._session.lanes.value
        return {name_of(no): due_at for no, due_at in rows}

    def _by_seq(self, seqs: Sequence[int]) -> list[JobRow]:
        return self._rows(self._session.select(sql.BY_SEQ, Numbers(seqs)))


def _fed(rows: list[tuple[int, str, int]]) -> tuple[Numbers, Texts, Numbers]:
    seqs, gates, amounts = zip(*rows, strict=True)
    return Numbers(seqs), Texts(gates), Numbers(amounts)


_Columns = tuple[Sequence[Any], ...]


def _columns(rows: Sequence[Row]) -> _Columns:
    return tuple(zip(*rows, strict=True))


def _differing(columns: _Columns) -> set[str]:
    """Return the columns of new jobs in which they differ."""
    named = zip(NEW, columns, strict=True)
    return {name for name, values in named if values.count(values[0]) < len(values)}


def _packed(
    names: Sequence[str], columns: _Columns, listed: Collection[str] | None = None
) -> list[Any]:
    """Return one list for each column; None for a column without any value.

    Args:
        listed: columns to pass as lists, None for all; the others get the first row's value.
    """
    packed: list[Any] = []
    for name, values in zip(names, columns, strict=True):
        kind = sql.KINDS[name]
        if listed is not None and name not in listed:
            packed.append(values[0])
        elif name in sql.REQUIRED:
            packed.append(_LISTS[kind](values))
        elif values.count(None) == len(values):
            packed.append(None)
        elif kind == "bigint":
            packed.append(MaybeNumbers(values))
        elif name == "reason":
            packed.append(Texts(None if one is None else storable(one) for one in values))
        else:
            packed.append(_LISTS[kind](values))
    return packed
