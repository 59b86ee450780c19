"""A ledger over the rows in a read script's reply, from which the views are built.

The script collects every row that the view may need, in one snapshot; asking for any other row is a
bug, and raises InvariantBroken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from headway.contract.repair import Suspicion
from headway.contract.views import JobsQuery
from headway.core.errors import InvariantBroken
from headway.core.flow import Head, Order
from headway.core.job import JobPolicy
from headway.core.state import State
from headway.stores.ledger.gaterows import GateRow, Holders, PermitRow, TemplateRow
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.rows import (
    EntryRow,
    FlowKey,
    HeldRow,
    JobRow,
    KeyRow,
    LaneRow,
    RunRow,
    ShutSpell,
    SignalRow,
    TrailRow,
    WorkerRow,
)
from headway.stores.ledger.tables.tokens import TokenRow
from headway.stores.redis import views_rows as rows
from headway.stores.redis.replies import suspicion
from headway.stores.redis.views_rows import Record, listed, paired

Value = TypeVar("Value")


def ledger_of(reply: Record) -> Ledger:
    """Return a ledger over a read script's reply.

    Returns:
        A ledger that answers what the views ask of it, and nothing else.
    """
    return cast("Ledger", _Snapshot(reply))


class _Snapshot:
    """All tables of one reply."""

    def __init__(self, reply: Record) -> None:
        self.now: int = reply["now"]
        self.jobs = _Jobs(reply)
        self.gates = _Gates(reply)
        self.permits = _Permits(reply)
        self.starts = _Starts(reply)
        self.lanes = _Lanes(reply)
        self.counts = _Counts(reply)
        self.keys = _Keys(reply)
        self.signals = _Signals(reply)
        self.workers = _Workers(reply)
        self.entries = _Entries(reply)
        self.tokens = _Tokens(reply)
        self.trail = _Trail(reply)
        self.facts = _Facts(reply)
        self.shut_spells: dict[int, ShutSpell] = {}


_SOME_RUN = HeldRow("", 0, 0, State.RUNNING, cancel_requested=False)
_SOME_HEAD = Head(Order(0, 0, 0), "", (), None, (), 0, 0, "", None, b"{}", 0, 0)


class _Jobs:
    def __init__(self, reply: Record) -> None:
        self._listed = [rows.job_row(one) for one in listed(reply, "jobs")]
        self._held = [rows.job_row(one) for one in listed(reply, "held")]
        self._rows = {row.id: row for row in self._listed}
        self._flows = {number: rows.flow_key(one) for number, one in listed(reply, "flows")}
        self._policies = {number: rows.policy(one) for number, one in listed(reply, "policies")}
        self._runs = {
            job: [rows.run_row(one) for one in ended] for job, ended in listed(reply, "runs")
        }
        self._parked = paired(reply, "parked")
        self._parked_gates = listed(reply, "parked_gates")
        self._oldest = paired(reply, "oldest")
        self._running = {one["id"]: one.get("running", 0) for one in listed(reply, "workers")}
        # Of flows: the ids of their first jobs, and how many wait.
        self._first = {number: (ids, count) for number, ids, count in listed(reply, "first_of")}
        self._place: int | None = reply.get("place")
        self._cursor: str | None = reply.get("cursor")

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        return {one: self._rows[one] for one in ids if one in self._rows}

    def flow(self, number: int) -> FlowKey:
        return self._flows[number]

    def policy(self, number: int) -> JobPolicy:
        return self._policies[number]

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        return {one: self._runs[one] for one in ids if one in self._runs}

    def page(self, query: JobsQuery) -> tuple[list[JobRow], str | None]:
        del query
        return self._listed, self._cursor

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        del after, limit
        return self._listed

    def place(self, flow: int, order: Order, limit: int) -> int:
        del flow, order, limit
        return _known(self._place, "a job's place in its flow")

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        del lane, after, limit
        return list(self._first)

    def heads(self, flow: int, limit: int) -> list[Head]:
        del limit
        # The view of flows only names them.
        return [_SOME_HEAD._replace(id=one) for one in self._first[flow][0]]

    def waiting_counts(self, lane: str, flows: Sequence[int], limit: int) -> dict[int, int]:
        del lane, limit
        return {flow: self._first[flow][1] for flow in flows}

    def parked_flows(self, gate: str, after: int, limit: int) -> list[int]:
        return self.flows_waiting(gate, after, limit)

    def unfit_at(self, gate: str, limit: int) -> list[str]:
        del gate, limit
        return [row.id for row in self._listed]

    def parked_ids(self, gate: str, flows: Sequence[int], limit: int) -> dict[int, list[str]]:
        del gate, limit
        return {flow: self._first[flow][0] for flow in flows}

    def parked_gates(self, after: str, limit: int) -> list[str]:
        del after, limit
        return list(self._parked_gates)

    def parked_counts(self, gates: Sequence[str], limit: int) -> Mapping[str, int]:
        del gates, limit
        return self._parked

    def oldest_due(self, lanes: Sequence[str]) -> Mapping[str, int]:
        del lanes
        return self._oldest

    def held_counts(self, workers: Sequence[str]) -> Mapping[str, int]:
        del workers
        return self._running

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        del worker, limit
        return [_SOME_RUN._replace(id=row.id) for row in self._listed]

    def held(self, after: str, limit: int) -> list[JobRow]:
        del after, limit
        return self._held


class _Gates:
    def __init__(self, reply: Record) -> None:
        found = (rows.template_row(one) for one in listed(reply, "templates"))
        self._templates = {row.spec.name: row for row in found}
        self._rows = {name: rows.gate_row(one) for name, one in listed(reply, "gates") if one}
        self._seen = {name for name, _ in listed(reply, "gates")}
        self._page = [self._rows[name] for name in listed(reply, "gate_page")]

    def templates(self) -> Mapping[str, TemplateRow]:
        return self._templates

    def load(self, names: Iterable[str]) -> dict[str, GateRow]:
        wanted = list(names)
        for name in wanted:
            if name not in self._seen:
                _known(None, f"the gate {name!r}")
        return {name: self._rows[name] for name in wanted if name in self._rows}

    def page(self, after: str, limit: int) -> list[GateRow]:
        del after, limit
        return self._page


class _Permits:
    def __init__(self, reply: Record) -> None:
        self._at = {
            name: Holders(count, amount, [rows.permit_row(one) for one in first])
            for name, count, amount, first in listed(reply, "permits")
        }
        self._sums = [(name, amount) for name, amount in listed(reply, "sums")]
        self._page = [rows.permit_row(one) for one in listed(reply, "permit_page")]
        self._of_held = [rows.permit_row(one) for one in listed(reply, "permits_of_held")]

    def at(self, gates: Sequence[str], limit: int) -> Mapping[str, Holders]:
        del gates, limit
        return self._at

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        del after, limit
        return self._sums

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        del after, limit
        return self._page

    def of_jobs(self, jobs: Iterable[str]) -> list[PermitRow]:
        del jobs
        return self._of_held


@dataclass(frozen=True, slots=True)
class _Counted:
    """Of a rate: its starts in the window, and the start whose leaving makes room for one."""

    total: int = 0
    leaves: int | None = None


class _Starts:
    def __init__(self, reply: Record) -> None:
        self._gates = {
            name: _Counted(total, leaves if leaves is not False else None)
            for name, total, leaves in listed(reply, "starts")
        }
        self._all = {
            name: [(at, number) for at, number in starts]
            for name, starts in listed(reply, "every_start")
        }

    def total(self, gate: str, after_at: int) -> int:
        del after_at
        return self._gates.get(gate, _Counted()).total

    def oldest(self, gate: str, after_at: int, limit: int) -> list[tuple[int, int]]:
        """Return all starts if the reply has them; else the one that matters, for all up to it."""
        del after_at
        if gate in self._all:
            return self._all[gate]
        at = self._gates.get(gate, _Counted()).leaves
        return [] if at is None else [(at, limit)]


class _Lanes:
    def __init__(self, reply: Record) -> None:
        self._rows = {one["name"]: rows.lane_row(one) for one in listed(reply, "lanes")}
        self._names = listed(reply, "lane_names")
        self._starts = {name: dict(starts) for name, starts in listed(reply, "tenant_starts")}

    def names(self) -> list[str]:
        return self._names

    def load(self, names: Iterable[str]) -> dict[str, LaneRow]:
        return {name: self._rows[name] for name in names if name in self._rows}

    def all_tenant_starts(self, lane: str) -> dict[str, int]:
        return self._starts[lane]


class _Counts:
    def __init__(self, reply: Record) -> None:
        self._of_lanes = paired(reply, "lane_counts")
        self._of_states = _by_state(reply.get("states") or {})
        self._totals = paired(reply, "totals")

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, dict[State, int]]:
        return {lane: _by_state(self._of_lanes.get(lane) or {}) for lane in lanes}

    def of_states(self) -> dict[State, int]:
        return self._of_states

    def totals(self) -> dict[str, int]:
        return self._totals


class _Keys:
    def __init__(self, reply: Record) -> None:
        found = (rows.key_row(one) for one in listed(reply, "dedupe"))
        self._rows = {(row.tenant, row.key): row for row in found}

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        return {place: self._rows[place] for place in keys if place in self._rows}


class _Signals:
    def __init__(self, reply: Record) -> None:
        self._known = [(key, job, run) for key, job, run in listed(reply, "known")]
        self._heard = [rows.signal_row(one) for one in listed(reply, "events")]

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        del jobs
        return self._known

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        del after, limit
        return self._known

    def all_heard(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        del after, limit
        return self._heard


class _Workers:
    def __init__(self, reply: Record) -> None:
        self._rows = {one["id"]: rows.worker_row(one) for one in listed(reply, "workers")}

    def all(self) -> list[WorkerRow]:
        return list(self._rows.values())

    def load(self, worker: str) -> WorkerRow | None:
        return self._rows.get(worker)


class _Entries:
    def __init__(self, reply: Record) -> None:
        self._rows = [rows.entry_row(one) for one in listed(reply, "entries")]

    def all(self) -> list[EntryRow]:
        return self._rows


class _Tokens:
    def __init__(self, reply: Record) -> None:
        self._rows = [rows.token_row(one) for one in listed(reply, "tokens")]

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        wanted = set(ids)
        return {row.spec.id: row for row in self._rows if row.spec.id in wanted}

    def all(self) -> list[TokenRow]:
        return self._rows


class _Trail:
    def __init__(self, reply: Record) -> None:
        self._page = [rows.trail_row(one) for one in listed(reply, "trail")]
        self._since = [rows.trail_row(one) for one in listed(reply, "since")]
        self._of = {
            target: [rows.trail_row(one) for one in lines]
            for target, lines in listed(reply, "notes")
        }

    def page(self, target: str | None, before: int | None, limit: int) -> list[TrailRow]:
        del before
        if target is not None and target in self._of:
            return self._of[target][:limit]
        return self._page

    def since(self, after: int, limit: int) -> list[TrailRow]:
        del after, limit
        return self._since


class _Facts:
    def __init__(self, reply: Record) -> None:
        self._facts: Record = paired(reply, "facts")

    def identity(self) -> str:
        # A store to which nothing was written yet has none.
        return self._facts.get("identity") or ""

    def epoch(self) -> int:
        return self._facts["epoch"]

    def revision(self) -> int:
        return self._facts["revision"]

    def clock_ahead_ms(self) -> int:
        return self._facts["clock_ahead_ms"]

    def suspicion(self) -> Suspicion | None:
        mark = self._facts.get("suspect")
        return None if mark is None else suspicion(mark)


def _by_state(reply: Mapping[str, int]) -> dict[State, int]:
    return {State(state): number for state, number in reply.items()}


def _known(value: Value | None, what: str) -> Value:
    """What the script looked at.

    Raises:
        InvariantBroken: it did not.
    """
    if value is None:
        message = f"a read needs {what}, which its script did not collect"
        raise InvariantBroken(message)
    return value
