"""The table of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from headway.core.check import is_job_id
from headway.core.flow import Head, Order
from headway.core.state import QUEUED, State
from headway.stores.ledger.columns import STATES, read_heads, read_job
from headway.stores.ledger.packing import decoder, encode, encode_cascade, encode_some
from headway.stores.ledger.rows import (
    DueFire,
    Finished,
    GatedStart,
    HeldRow,
    JobRow,
    RunRow,
)
from headway.stores.sql.jobs import SqlJobs, new_columns, saved_values
from headway.stores.sql.statement import KEPT_EVENTS, Row
from headway.stores.sqlite.caches import LAST_SEQ
from headway.stores.sqlite.database import flat, number_list, text_list
from headway.stores.sqlite.session import Session
from headway.stores.sqlite.tables import SqliteTable
from headway.stores.sqlite.tables import job_statements as sql

_decode_run = decoder(RunRow)
_SEQ = attrgetter("seq")


class SqliteJobs(SqliteTable, SqlJobs[Session]):
    """See `JobTable`."""

    queries = sql.LISTINGS

    def _rows(self, found: Iterable[Row]) -> list[JobRow]:
        flow_of, word_of = self._session.flows.value, self._session.words.value
        return [read_job(row, flow_of, word_of) for row in found]

    def insert(self, rows: Sequence[JobRow]) -> None:
        session = self._session
        last = session.numbers[LAST_SEQ]
        lane, word = session.lanes.number, session.words.number
        queued: list[JobRow] = []
        others: list[Row] = []
        for seq, row in enumerate(rows, last + 1):
            row.seq = seq
            if row.state in QUEUED:
                queued.append(row)
            else:
                first = (seq, row.id, lane(row.lane), row.created_at, row.entry, row.fired_at)
                others.append((*first, *saved_values(row, word)))
        if queued:
            columns = map(_SEQ, queued), *new_columns(queued, lane)
            self._db.executemany(sql.INSERT_QUEUED, zip(*columns, strict=True))
        if others:
            self._db.executemany(sql.INSERT, others)
        session.numbers.put(LAST_SEQ, last + len(rows))

    def known(self, ids: Sequence[str]) -> set[str]:
        if len(ids) == 1:
            found = self._db.execute(sql.KNOWN_ONE, ids).get
            return set() if found is None else {found}
        if not ids:
            return set()
        return set(flat(self._db.execute(sql.KNOWN, (text_list(ids),))))

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        # Ids come from callers unchecked, and the list parameter accepts no text with a NUL.
        wanted = tuple(filter(is_job_id, dict.fromkeys(ids)))
        if not wanted:
            return {}
        rows = self._rows(self._db.execute(sql.LOAD, (text_list(wanted),)))
        found = {row.id: row for row in rows}
        return {one: found[one] for one in wanted if one in found}

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        return self._rows(self._db.execute(sql.ARRIVED, (after, limit)))

    def save(self, rows: Iterable[JobRow]) -> None:
        rows, word = [*rows], self._session.words.number
        # A row may become parked, or fit again.
        self._session.none_parked.difference_update(row.parked_at or "" for row in rows)
        self._db.executemany(sql.SAVE, [(*saved_values(row, word), row.seq) for row in rows])

    def remove(self, ids: Sequence[str]) -> list[tuple[str, State]]:
        if not ids:
            return []
        db, named = self._db, text_list(ids)
        found = db.execute(sql.SEQS, (named,)).fetchall()
        if not found:
            return []
        flow = self._session.flows.value
        keys = [(flow(no).tenant, key, one) for _, one, key, no, _ in found if key is not None]
        gone = number_list([row[0] for row in found])
        kept = db.execute(sql.COUNT_EVENTS, (named,)).get
        if kept:
            self._session.numbers.add(KEPT_EVENTS, -kept)
        db.execute(sql.REMOVE_EVENTS, (named,))
        db.execute(sql.REMOVE_KNOWN, (named,))
        db.execute(sql.REMOVE_RUNS, (gone,))
        db.execute(sql.REMOVE, (gone,))
        db.executemany(sql.REMOVE_KEY, keys)
        return [(flow(no).lane, STATES[state]) for *_, no, state in found]

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        self._db.executemany(sql.ADD_RUN, [(row.job, row.run, encode(row)) for row in rows])

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        if not ids:
            return {}
        found: dict[str, list[RunRow]] = {}
        for seq, one, *_ in self._db.execute(sql.SEQS, (text_list(ids),)).fetchall():
            runs = [_decode_run(body) for (body,) in self._db.execute(sql.RUNS, (seq,))]
            if runs:
                found[one] = runs
        return found

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        number = self._session.lanes.find(lane)
        if number is None:
            return []
        return list(flat(self._db.execute(sql.FLOWS_WAITING, (number, after, limit))))

    def heads(self, flow: int, limit: int) -> list[Head]:
        lane = self._session.lanes.find(self._session.flows.value(flow).lane)
        return read_heads(self._db.execute(sql.HEADS, (lane, flow, limit)).fetchall())

    def first_orders(self, flows: Sequence[int], limit: int) -> dict[int, Order]:  # noqa: ARG002  (for stores that read in sets)
        lane = self._session.lanes.find(self._session.flows.value(flows[0]).lane)
        found = self._db.execute(sql.FIRST_ORDERS, (lane, number_list(flows))).fetchall()
        return {flow: Order(*order) for flow, *order in found}

    def start_plain(self, seqs: Sequence[int], worker: str, request: int) -> None:
        who = self._session.words.number(worker)
        now = self._session.now
        self._db.execute(sql.START_PLAIN, (number_list(seqs), who, request, now))

    def start_gated(self, starts: Sequence[GatedStart], worker: str, request: int) -> None:
        who = self._session.words.number(worker)
        now = self._session.now
        self._db.executemany(
            sql.START_GATED,
            (
                (
                    seq,
                    who,
                    request,
                    now,
                    blocked_ms,
                    encode_some(members),
                    candidate or None,
                    encode_cascade(cascade) if cascade else None,
                )
                for seq, members, candidate, cascade, blocked_ms in starts
            ),
        )

    def finish_plain(self, worker: str, runs: Sequence[tuple[str, int]], purge_at: int) -> Finished:
        who = self._session.words.find(worker)
        by_run: dict[int, list[str]] = {}
        if who is not None:
            for one, run in runs:
                by_run.setdefault(run, []).append(one)
        lanes: dict[tuple[str, int], str] = {}
        gated = False
        for run, ids in by_run.items():
            which = (text_list(ids), run, who)
            count, first, last, any_gated = self._db.execute(sql.FINISHING_LANES, which).get
            if not count:
                continue
            gated = gated or bool(any_gated)
            lane = self._session.lanes.value
            if count == len(ids) and first == last:
                if count == len(runs):
                    self._db.execute(sql.FINISH, (*which, self._session.now, purge_at))
                    return Finished([lane(first)] * count, gated)
                lanes.update(dict.fromkeys(((one, run) for one in ids), lane(first)))
            else:
                ended = self._db.execute(sql.FINISHING, which).fetchall()
                lanes.update(((one, run), lane(no)) for one, no in ended)
            self._db.execute(sql.FINISH, (*which, self._session.now, purge_at))
        return Finished([lanes.pop(one, None) for one in runs], gated)

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        who = self._session.words.find(worker)
        if who is None:
            return []
        most = -1 if limit is None else limit
        return [
            HeldRow(one, run, request, STATES[state], bool(cancel))
            for one, run, request, state, cancel in self._db.execute(sql.HELD_BY, (who, most))
        ]

    def held_counts(self, workers: Sequence[str]) -> dict[str, int]:
        return {one: len(self.held_by(one)) for one in workers}

    def taken_by(self, worker: str, request: int) -> list[JobRow]:
        who = self._session.words.find(worker)
        return [] if who is None else self._rows(self._db.execute(sql.TAKEN_BY, (who, request)))

    def held(self, after: str, limit: int) -> list[JobRow]:
        # By worker, because an index by id would be updated at each start and end.
        holders = [None, *flat(self._db.execute(sql.HOLDERS).fetchall())]
        ids: list[str] = []
        for worker in holders:
            ids += flat(self._db.execute(sql.HELD_IDS, (worker, after, limit)))
        return list(self.load(sorted(ids)[:limit]).values())

    def promote_due(self, lanes: Sequence[str], limit: int) -> tuple[dict[str, int], list[DueFire]]:
        counts: dict[str, int] = {}
        fires: list[DueFire] = []
        if len(lanes) > 1:
            # Mostly nothing is due, and one query finds that out for all lanes.
            due_at = self.next_due(lanes)
            if due_at is None or due_at > self._session.now:
                return counts, fires
        for lane in lanes:
            number = self._session.lanes.find(lane)
            if number is None:
                continue
            rows = self._db.execute(sql.DUE, (number, self._session.now, limit)).fetchall()
            plain = [seq for seq, _, entry, _ in rows if entry is None]
            if plain:
                counts[lane] = len(plain)
                self._promote(plain)
            fires += [
                DueFire(seq, one, entry, due_at, lane)
                for seq, one, entry, due_at in rows
                if entry is not None
            ]
        return counts, fires

    def promote(self, fires: Sequence[DueFire]) -> None:
        self._promote([fire.seq for fire in fires])

    def _promote(self, seqs: Sequence[int]) -> None:
        self._db.execute(sql.PROMOTE, (number_list(seqs),))

    def next_due(self, lanes: Sequence[str]) -> int | None:
        numbers = [one for lane in lanes if (one := self._session.lanes.find(lane)) is not None]
        return self._db.execute(sql.NEXT_DUE, (number_list(numbers),)).get if numbers else None

    def lanes_due(self, limit: int) -> list[str]:
        return list(flat(self._db.execute(sql.LANES_DUE, (self._session.now, limit))))

    def expired(self, limit: int) -> list[str]:
        return list(flat(self._db.execute(sql.EXPIRED, (self._session.now, limit))))

    def next_expiry(self) -> int | None:
        return self._db.execute(sql.NEXT_EXPIRY).get

    def deadlines(self, limit: int) -> list[str]:
        return list(flat(self._db.execute(sql.DEADLINES, (self._session.now, limit))))

    def next_deadline(self) -> int | None:
        return self._db.execute(sql.NEXT_DEADLINE).get

    def purgeable(self, limit: int) -> list[str]:
        return list(flat(self._db.execute(sql.PURGEABLE, (self._session.now, limit))))

    def of_entry(self, entry: str) -> list[JobRow]:
        return self._rows(self._db.execute(sql.OF_ENTRY, (entry,)))

    def find_parked(self, gates: Iterable[str]) -> None:
        """Note in the session the gates where no fit jobs are parked."""
        none = self._session.none_parked
        names = {gate for gate in gates if gate not in none}
        if names:
            none |= names.difference(flat(self._db.execute(sql.WITH_PARKED, (text_list(names),))))

    def parked_flows(self, gate: str, after: int, limit: int) -> list[int]:
        if gate in self._session.none_parked:
            return []
        return list(flat(self._db.execute(sql.PARKED_FLOWS, (gate, after, limit))))

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        if gate in self._session.none_parked:
            return []
        return read_heads(self._db.execute(sql.PARKED_HEADS, (gate, flow, limit)))

    def parked_ids(self, gate: str, flows: Sequence[int], limit: int) -> dict[int, list[str]]:
        ids = {flow: self._db.execute(sql.PARKED_IDS, (gate, flow, limit)) for flow in flows}
        found = {flow: [one for (one,) in rows] for flow, rows in ids.items()}
        return {flow: some for flow, some in found.items() if some}

    def parked_order(self, gate: str, flow: int) -> Order | None:
        if gate in self._session.none_parked:
            return None
        row = self._db.execute(sql.PARKED_ORDER, (gate, flow)).fetchone()
        return Order._make(row) if row is not None else None

    def parked_orders(self, gate: str, flows: Sequence[int]) -> dict[int, Order]:
        found = self._db.execute(sql.PARKED_ORDERS, (gate, number_list(flows))).fetchall()
        return {flow: Order(*order) for flow, *order in found}

    def parked_counts(self, gates: Sequence[str], limit: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for gate in gates:
            fit: int = self._db.execute(sql.COUNT_FIT, (gate, limit)).get
            unfit: int = self._db.execute(sql.COUNT_UNFIT, (gate, limit)).get
            found[gate] = min(limit, fit + unfit)
        return found

    def unfit_at(self, gate: str, most: int, limit: int) -> list[str]:
        return list(flat(self._db.execute(sql.UNFIT_AT, (gate, most, limit))))

    def parked_gates(self, after: str, limit: int) -> list[str]:
        found = self._db.execute(sql.GATES_FIT, (after, limit)).fetchall()
        found += self._db.execute(sql.GATES_UNFIT, (after, limit)).fetchall()
        return sorted({gate for (gate,) in found})[:limit]

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        return [
            (Order(priority, due_at, seq), amount)
            for priority, due_at, seq, amount in self._db.execute(sql.TICKETS, (gate, flow))
        ]

    def feed(self, heads: Sequence[Head], gate: str, amounts: Sequence[int]) -> None:
        now, each = self._session.now, zip(heads, amounts, strict=True)
        fed = [(head.order.seq, gate, amount, now) for head, amount in each]
        self._db.executemany(sql.FEED, fed)

    def park(self, seqs: Sequence[int], gate: str, *, unfit: int) -> None:
        self._session.none_parked.discard(gate)
        self._db.execute(sql.PARK, (number_list(seqs), gate, unfit, self._session.now))

    def place(self, flow: int, order: Order, limit: int) -> int:
        lane = self._session.lanes.find(self._session.flows.value(flow).lane)
        which = (lane, flow, order.priority, limit)
        count: int = self._db.execute(sql.BEFORE, which).get
        if count < limit:
            count += self._db.execute(sql.BEFORE_DUE, (*which, order.due_at)).get
        if count < limit:
            count += self._db.execute(sql.BEFORE_SEQ, (*which, order.due_at, order.seq)).get
        return min(limit, count)

    def waiting_counts(self, lane: str, flows: Sequence[int], limit: int) -> dict[int, int]:
        number = self._session.lanes.find(lane)
        counted = {flow: self._db.execute(sql.WAITING, (number, flow, limit)).get for flow in flows}
        return {flow: int(count) for flow, count in counted.items()}

    def oldest_due(self, lanes: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for lane in lanes:
            number = self._session.lanes.find(lane)
            flows = self.flows_waiting(lane, -1, 16)
            if flows:
                firsts = [self._db.execute(sql.FIRST_DUE, (number, flow)).get for flow in flows]
                found[lane] = min(firsts)
        return found

    def _by_seq(self, seqs: Sequence[int]) -> list[JobRow]:
        return self._rows(self._db.execute(sql.BY_SEQ, (number_list(seqs),)))
