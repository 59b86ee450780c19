"""The job table in memory: rows by arrival, with indexes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice

from headway.contract.views import JobsQuery
from headway.core.flow import Head, Order
from headway.core.job import JobPolicy
from headway.core.state import State
from headway.stores.ledger.paging import MOST_EXAMINED, read_place, read_until_large
from headway.stores.ledger.rows import (
    DueFire,
    Finished,
    FlowKey,
    GatedStart,
    HeldRow,
    JobRow,
    RunRow,
)
from headway.stores.memory.jobindex import JobIndex, filings
from headway.stores.memory.journal import Journal
from headway.stores.memory.records import MemoryKeys, MemorySignals
from headway.stores.memory.timing import StepTime


class MemoryJobs:
    """See `JobTable`. A stored row is never changed in place, but replaced."""

    def __init__(
        self, time: StepTime, journal: Journal, keys: MemoryKeys, signals: MemorySignals
    ) -> None:
        self._time = time
        self._journal = journal
        self._keys = keys
        self._signals = signals
        self._rows: dict[int, JobRow] = {}
        self._seqs: dict[str, int] = {}
        self._index = JobIndex()
        self._next_seq = 1
        self._flows: dict[FlowKey, int] = {}
        self._flow_keys: list[FlowKey] = []
        self._policies: dict[JobPolicy, int] = {}
        self._policy_list: list[JobPolicy] = []
        self._runs: dict[str, list[RunRow]] = {}

    def _put(self, row: JobRow) -> None:
        old = self._rows.get(row.seq)
        self._file(old, row)
        self._rows[row.seq] = row
        self._journal.note(lambda: self._restore(row, old))

    def _restore(self, row: JobRow, old: JobRow | None) -> None:
        self._file(row, old)
        if old is None:
            del self._rows[row.seq]
            del self._seqs[row.id]
        else:
            self._rows[row.seq] = old
            self._seqs[row.id] = row.seq

    def _file(self, old: JobRow | None, new: JobRow | None) -> None:
        before = filings(old) if old is not None else []
        after = filings(new) if new is not None else []
        for filing in before:
            if filing not in after:
                self._index.discard(filing)
        for filing in after:
            if filing not in before:
                self._index.add(filing)

    def _head(self, row: JobRow) -> Head:
        return Head(
            row.order,
            row.id,
            row.keyed,
            row.ticket,
            row.cascade.order() if row.cascade is not None else (),
            row.run,
            row.attempt,
            row.stage,
            row.subject,
            row.args,
            row.policy,
            row.blocked_ms,
        )

    def insert(self, rows: Sequence[JobRow]) -> None:
        for row in rows:
            row.seq = self._next_seq
            self._next_seq += 1
            self._seqs[row.id] = row.seq
            self._put(row.clone())

    def known(self, ids: Sequence[str]) -> set[str]:
        return {one for one in ids if one in self._seqs}

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        seqs = self._seqs
        return {one: self._rows[seqs[one]].clone() for one in ids if one in seqs}

    def save(self, rows: Iterable[JobRow]) -> None:
        for row in rows:
            self._put(row.clone())

    def remove(self, ids: Sequence[str]) -> list[tuple[str, State]]:
        removed: list[tuple[str, State]] = []
        for one in ids:
            row = self._rows.pop(self._seqs.pop(one))
            self._file(row, None)
            self._journal.note(lambda row=row: self._bring_back(row))
            self._journal.drop(self._runs, one)
            self._signals.forget_job(one)
            if row.key is not None:
                self._keys.forget(row.tenant, row.key, one)
            removed.append((row.lane, row.state))
        return removed

    def _bring_back(self, row: JobRow) -> None:
        self._rows[row.seq] = row
        self._seqs[row.id] = row.seq
        self._file(None, row)

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        seqs = sorted(seq for seq in self._rows if seq > after)[:limit]
        return [self._rows[seq].clone() for seq in seqs]

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        for row in rows:
            self._journal.put(self._runs, row.job, [*self._runs.get(row.job, ()), row])

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        return {one: self._runs[one] for one in ids if one in self._runs}

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        return list(self._index.groups("lane waiting", lane, after, limit))

    def heads(self, flow: int, limit: int) -> list[Head]:
        orders = islice(self._index.bucket("waiting", flow), limit)
        return [self._head(self._rows[order.seq]) for order in orders]

    def first_orders(self, flows: Sequence[int], limit: int) -> dict[int, Order]:  # noqa: ARG002  (for stores that read in sets)
        orders = {flow: next(iter(self._index.bucket("waiting", flow)), None) for flow in flows}
        return {flow: order for flow, order in orders.items() if order is not None}

    def start_plain(self, seqs: Sequence[int], worker: str, request: int) -> None:
        for seq in seqs:
            row = self._rows[seq].clone()
            self._begin(row, worker, request, 0)
            self._put(row)

    def _begin(self, row: JobRow, worker: str, request: int, blocked_ms: int) -> None:
        row.state = State.RUNNING
        row.run += 1
        row.attempt += 1
        row.worker, row.request = worker, request
        row.claimed_at = self._time.now
        row.blocked_ms += blocked_ms
        row.ticket, row.ticket_amount = None, 0

    def start_gated(self, starts: Sequence[GatedStart], worker: str, request: int) -> None:
        for start in starts:
            row = self._rows[start.seq].clone()
            self._begin(row, worker, request, start.blocked_ms)
            row.members = dict(start.members)
            row.gated = bool(start.members)
            row.candidate = start.candidate
            row.cascade = start.cascade or row.cascade
            self._put(row)

    def finish_plain(self, worker: str, runs: Sequence[tuple[str, int]], purge_at: int) -> Finished:
        lanes: list[str | None] = []
        gated = False
        for one, run in runs:
            seq = self._seqs.get(one)
            row = self._rows[seq] if seq is not None else None
            if (
                row is None
                or row.state is not State.RUNNING
                or row.care
                or row.run != run
                or row.worker != worker
            ):
                lanes.append(None)
                continue
            row = row.clone()
            row.state, row.outcome, row.reason = State.SUCCEEDED, "succeeded", ""
            row.worker, row.last_worker = None, worker
            row.finished_at, row.purge_at = self._time.now, purge_at
            self._put(row)
            lanes.append(row.lane)
            gated = gated or row.gated
        return Finished(lanes, gated)

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        held = islice(self._index.bucket("worker", worker), limit)
        rows = (self._rows[order.seq] for order, _ in held)
        return [
            HeldRow(row.id, row.run, row.request, row.state, row.cancel_requested) for row in rows
        ]

    def held_counts(self, workers: Sequence[str]) -> dict[str, int]:
        return {one: len(self._index.bucket("worker", one)) for one in workers}

    def taken_by(self, worker: str, request: int) -> list[JobRow]:
        rows = (self._rows[order.seq] for order, _ in self._index.bucket("worker", worker))
        return [
            row.clone() for row in rows if row.request == request and row.state is State.RUNNING
        ]

    def held(self, after: str, limit: int) -> list[JobRow]:
        bucket = self._index.bucket("held")
        ids = islice(bucket.irange(minimum=after, inclusive=(False, True)), limit)
        return [self._rows[self._seqs[one]].clone() for one in ids]

    def parked_flows(self, gate: str, after: int, limit: int) -> list[int]:
        return list(self._index.groups("parked flows", gate, after, limit))

    def parked_heads(self, gate: str, flow: int, limit: int) -> list[Head]:
        orders = islice(self._index.bucket("parked", (gate, flow)), limit)
        return [self._head(self._rows[order.seq]) for order in orders]

    def parked_ids(self, gate: str, flows: Sequence[int], limit: int) -> dict[int, list[str]]:
        found = {flow: islice(self._index.bucket("parked", (gate, flow)), limit) for flow in flows}
        ids = {flow: [self._rows[one.seq].id for one in orders] for flow, orders in found.items()}
        return {flow: some for flow, some in ids.items() if some}

    def parked_order(self, gate: str, flow: int) -> Order | None:
        bucket = self._index.bucket("parked", (gate, flow))
        return bucket[0] if bucket else None

    def parked_orders(self, gate: str, flows: Sequence[int]) -> dict[int, Order]:
        orders = {flow: self.parked_order(gate, flow) for flow in flows}
        return {flow: order for flow, order in orders.items() if order is not None}

    def parked_counts(self, gates: Sequence[str], limit: int) -> dict[str, int]:
        return {one: min(limit, len(self._index.bucket("parked at", one))) for one in gates}

    def unfit_at(self, gate: str, most: int, limit: int) -> list[str]:
        bucket = self._index.bucket("unfit", gate)
        found = islice(bucket.irange(maximum=(most + 1,), inclusive=(True, False)), limit)
        return [self._rows[seq].id for _, seq in found]

    def parked_gates(self, after: str, limit: int) -> list[str]:
        names = self._index.gates_parked
        return list(islice(names.irange(minimum=after, inclusive=(False, True)), limit))

    def tickets(self, gate: str, flow: int) -> list[tuple[Order, int]]:
        return [
            (order, self._rows[order.seq].ticket_amount)
            for order in self._index.bucket("ticket", (gate, flow))
        ]

    def feed(self, heads: Sequence[Head], gate: str, amounts: Sequence[int]) -> None:
        for head, amount in zip(heads, amounts, strict=True):
            row = self._rows[head.order.seq].clone()
            row.state = State.WAITING
            row.ticket, row.ticket_amount = gate, amount
            row.blocked_ms += self._time.now - row.parked_since
            row.parked_at, row.unfit = None, False
            self._put(row)

    def park(self, seqs: Sequence[int], gate: str, *, unfit: int) -> None:
        for seq in seqs:
            row = self._rows[seq].clone()
            if row.state is State.PARKED:
                row.blocked_ms += self._time.now - row.parked_since
            row.state = State.PARKED
            row.ticket, row.ticket_amount = None, unfit
            row.parked_at, row.unfit = gate, unfit > 0
            row.parked_since = self._time.now
            self._put(row)

    def promote_due(self, lanes: Sequence[str], limit: int) -> tuple[dict[str, int], list[DueFire]]:
        counts: dict[str, int] = {}
        fires: list[DueFire] = []
        for lane in lanes:
            rows = [self._rows[seq] for seq in self._due(lane, limit)]
            plain = [row.seq for row in rows if row.run or row.entry is None]
            if plain:
                counts[lane] = len(plain)
                self._promote(plain)
            fires += [
                DueFire(row.seq, row.id, row.entry, row.due_at, lane)
                for row in rows
                if row.entry is not None and not row.run
            ]
        return counts, fires

    def _due(self, lane: str, limit: int) -> list[int]:
        bucket = islice(self._index.bucket("scheduled", lane), limit)
        return [seq for due_at, seq in bucket if due_at <= self._time.now]

    def promote(self, fires: Sequence[DueFire]) -> None:
        self._promote(fire.seq for fire in fires)

    def _promote(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            row = self._rows[seq].clone()
            row.state = State.WAITING
            self._put(row)

    def next_due(self, lanes: Sequence[str]) -> int | None:
        buckets = [self._index.bucket("scheduled", lane) for lane in lanes]
        return min((bucket[0][0] for bucket in buckets if bucket), default=None)

    def lanes_due(self, limit: int) -> list[str]:
        lanes = (lane for lane in self._index.lanes_scheduled if self._is_due(lane))
        return list(islice(lanes, limit))

    def _is_due(self, lane: str) -> bool:
        due_at = self.next_due([lane])
        return due_at is not None and due_at <= self._time.now

    def _past(self, index: str, limit: int) -> list[str]:
        found: list[str] = []
        for at, seq in islice(self._index.bucket(index), limit):
            if at > self._time.now:
                break
            found.append(self._rows[seq].id)
        return found

    def _first(self, index: str) -> int | None:
        bucket = self._index.bucket(index)
        return bucket[0][0] if bucket else None

    def expired(self, limit: int) -> list[str]:
        return self._past("expiry", limit)

    def next_expiry(self) -> int | None:
        return self._first("expiry")

    def deadlines(self, limit: int) -> list[str]:
        return self._past("deadline", limit)

    def next_deadline(self) -> int | None:
        return self._first("deadline")

    def purgeable(self, limit: int) -> list[str]:
        return self._past("purge", limit)

    def of_entry(self, entry: str) -> list[JobRow]:
        return [self._rows[seq].clone() for _, seq in self._index.bucket("entry", entry)]

    # Numbers are never reused: a number assigned by an undone step stays unused.

    def flow_number(self, key: FlowKey) -> int:
        number = self._flows.get(key)
        if number is None:
            number = self._flows[key] = len(self._flow_keys)
            self._flow_keys.append(key)
        return number

    def flow(self, number: int) -> FlowKey:
        return self._flow_keys[number]

    def policy_number(self, policy: JobPolicy) -> int:
        number = self._policies.get(policy)
        if number is None:
            number = self._policies[policy] = len(self._policy_list)
            self._policy_list.append(policy)
        return number

    def policy(self, number: int) -> JobPolicy:
        return self._policy_list[number]

    def place(self, flow: int, order: Order, limit: int) -> int:
        return min(limit, self._index.bucket("waiting", flow).bisect_left(order))

    def waiting_counts(self, lane: str, flows: Sequence[int], limit: int) -> dict[int, int]:
        del lane
        return {flow: min(limit, len(self._index.bucket("waiting", flow))) for flow in flows}

    def oldest_due(self, lanes: Sequence[str]) -> dict[str, int]:
        flows = {lane: self.flows_waiting(lane, -1, 16) for lane in lanes}
        return {
            lane: min(self._index.bucket("waiting", flow)[0].due_at for flow in some)
            for lane, some in flows.items()
            if some
        }

    def page(self, query: JobsQuery) -> tuple[list[JobRow], str | None]:
        if query.subject is not None:
            bucket = self._index.bucket("subject", (query.tenant or "", query.subject))
        else:
            awaiting = query.states == (State.AWAITING,)
            bucket = self._index.bucket("awaiting" if awaiting else "all")
        start = read_place(query.cursor)
        if query.newest:
            seqs = bucket.irange(maximum=start, inclusive=(True, False), reverse=True)
        else:
            seqs = bucket.irange(minimum=start, inclusive=(False, True))
        found: list[int] = []
        last: int | None = None
        for looked, seq in enumerate(seqs):
            if len(found) == query.limit or looked == MOST_EXAMINED:
                return read_until_large(found, self._clones, json.dumps(last))
            last = seq
            if _matches(self._rows[seq], query):
                found.append(seq)
        return read_until_large(found, self._clones, None)

    def _clones(self, seqs: Sequence[int]) -> list[JobRow]:
        return [self._rows[seq].clone() for seq in seqs]


def _matches(row: JobRow, query: JobsQuery) -> bool:
    return (
        (not query.states or row.state in query.states)
        and (query.lane is None or row.lane == query.lane)
        and (query.tenant is None or row.tenant == query.tenant)
        and (query.kind is None or row.kind == query.kind)
    )
