"""A ledger over the rows in a read script's reply, from which the views are built.

The script collects every row that the view may need, in one snapshot. Reading any other row is a
bug, and raises InvariantBroken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

import msgspec

from headway.contract.definitions import EntrySpec
from headway.contract.extensions import Suspicion
from headway.core.errors import InvariantBroken
from headway.core.flow import Head, Order
from headway.core.gates.spec import GateUse
from headway.core.job import JobPolicy
from headway.core.state import State
from headway.stores.ledger.gaterows import GateRow, GateTemplates, Holders, PermitRow, TemplateRow
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.packing import StoredEntry, entry_spec
from headway.stores.ledger.rows import (
    ClosedPeriod,
    EntryRow,
    FlowKey,
    HeldRow,
    JobRow,
    KeyRow,
    LaneRow,
    RunRow,
    SignalRow,
    TrailRow,
    WorkerRow,
)
from headway.stores.ledger.tables import TokenRow
from headway.stores.redis.replies import suspicion
from headway.stores.redis.values import signal_from_script

Value = TypeVar("Value")

_Record = Mapping[str, Any]
"""A row as a map of its fields, without those that are None.

An empty map arrives as an empty list, because Lua has one type for both.
"""

_PAYLOADS = frozenset({"args", "body", "result", "progress"})


def listed(record: _Record, name: str) -> list[Any]:
    """Return a list in a record; empty if it is missing."""
    return record.get(name) or []


def paired(record: _Record, name: str) -> dict[Any, Any]:
    """Return a map that was sent as pairs or as a map."""
    return dict(record.get(name) or ())


def payload(record: str | bytes) -> bytes:
    """Return the bytes of a payload; scripts pass it as text, which may not be valid UTF-8."""
    return record if isinstance(record, bytes) else record.encode("utf-8", "surrogateescape")


def _row(kind: type[Value], record: _Record, **others: object) -> Value:
    """Convert a record to a row; `others` replace its fields."""
    return msgspec.convert({**record, **others}, kind, builtin_types=(bytes,))


def _tuple_row(kind: type[Value], record: _Record) -> Value:
    """Convert a record to a named tuple; missing texts are empty."""
    names: tuple[str, ...] = getattr(kind, "_fields")  # noqa: B009  (named tuples have no type)
    return msgspec.convert([record.get(name, "") for name in names], kind)


def _job_row(record: _Record) -> JobRow:
    payloads = {name: payload(record[name]) for name in _PAYLOADS & record.keys()}
    subject, members = record.get("subject"), paired(record, "members")
    return _row(JobRow, record, subject=subject, members=members, **payloads)


def _run_row(record: _Record) -> RunRow:
    handed_at, members = record.get("handed_at"), paired(record, "members")
    return _row(RunRow, record, handed_at=handed_at, members=members)


def _flow_key(record: _Record) -> FlowKey:
    shared = msgspec.convert(listed(record, "shared"), tuple[GateUse, ...])
    return FlowKey(record["lane"], record["tenant"], record["kind"], shared)


def _gate_row(record: _Record) -> GateRow:
    reserved = record.get("reserved")
    if reserved:
        order = [reserved["order"][name] for name in Order._fields]
        reserved = [reserved["job"], order, reserved["amount"], reserved["until_at"]]
    return _row(GateRow, record, reserved=reserved or None)


def _lane_row(record: _Record) -> LaneRow:
    return _row(
        LaneRow, record, spec=record.get("spec") or None, override=record.get("override") or None
    )


def _entry_row(record: _Record) -> EntryRow:
    # Not with msgspec, which refuses the union of the three kinds of schedules.
    spec = record.get("spec")
    known: dict[str, Any] = {
        one.name: record[one.name] for one in fields(EntryRow) if one.name in record
    }
    known["spec"] = _entry_spec(spec) if spec else None
    return EntryRow(**known)


def _key_row(record: _Record) -> KeyRow:
    body = payload(record["body"])
    return KeyRow(record["tenant"], record["key"], record["job"], body, record.get("until_at"))


def _signal_row(record: _Record) -> SignalRow:
    kept = signal_from_script(payload(record.get("payload", "")))
    return _row(SignalRow, record, payload=kept)


def _entry_spec(record: _Record) -> EntrySpec:
    job = {**record["job"], "args": payload(record["job"]["args"])}
    return entry_spec(msgspec.convert({**record, "job": job}, StoredEntry))


def ledger_of(reply: _Record) -> Ledger:
    """Return a ledger over a read script's reply, limited to what the views read."""
    return cast("Ledger", _Snapshot(reply))


class _Snapshot:
    """All tables of one reply."""

    def __init__(self, reply: _Record) -> None:
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
        self.closed_periods: dict[int, ClosedPeriod] = {}


_SOME_RUN = HeldRow("", 0, 0, State.RUNNING, cancel_requested=False)
_SOME_HEAD = Head(Order(0, 0, 0), "", (), None, (), 0, 0, "", None, b"{}", 0, 0)


class _Jobs:
    def __init__(self, reply: _Record) -> None:
        self._listed = [_job_row(one) for one in listed(reply, "jobs")]
        self._held = [_job_row(one) for one in listed(reply, "held")]
        self._rows = {row.id: row for row in self._listed}
        self._flows = {number: _flow_key(one) for number, one in listed(reply, "flows")}
        self._policies = {
            number: msgspec.convert(one, JobPolicy) for number, one in listed(reply, "policies")
        }
        self._runs = {job: [_run_row(one) for one in ended] for job, ended in listed(reply, "runs")}
        self._parked = paired(reply, "parked")
        self._parked_gates = listed(reply, "parked_gates")
        self._oldest = paired(reply, "oldest")
        self._running = {one["id"]: one.get("running", 0) for one in listed(reply, "workers")}
        # By flow: the ids of its first jobs, and the number of waiting jobs.
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

    def page(self, *_: object) -> tuple[list[JobRow], str | None]:
        return self._listed, self._cursor

    def arrived(self, _after: int, limit: int) -> list[JobRow]:
        return self._listed[:limit]

    def place(self, *_: object) -> int:
        return _known(self._place, "a job's place in its flow")

    def flows_waiting(self, *_: object) -> list[int]:
        return list(self._first)

    def heads(self, flow: int, _limit: int) -> list[Head]:
        # The view of flows uses only their ids.
        return [_SOME_HEAD._replace(id=one) for one in self._first[flow][0]]

    def waiting_counts(self, _lane: str, flows: Sequence[int], _limit: int) -> dict[int, int]:
        return {flow: self._first[flow][1] for flow in flows}

    parked_flows = flows_waiting

    def unfit_at(self, *_: object) -> list[str]:
        return [row.id for row in self._listed]

    def parked_ids(self, _gate: str, flows: Sequence[int], _limit: int) -> dict[int, list[str]]:
        return {flow: self._first[flow][0] for flow in flows}

    def parked_gates(self, *_: object) -> list[str]:
        return list(self._parked_gates)

    def parked_counts(self, *_: object) -> Mapping[str, int]:
        return self._parked

    def oldest_due(self, *_: object) -> Mapping[str, int]:
        return self._oldest

    def held_counts(self, *_: object) -> Mapping[str, int]:
        return self._running

    def held_by(self, *_: object) -> list[HeldRow]:
        return [_SOME_RUN._replace(id=row.id) for row in self._listed]

    def held(self, *_: object) -> list[JobRow]:
        return self._held


class _Gates:
    def __init__(self, reply: _Record) -> None:
        found = (
            _row(TemplateRow, one, override=one.get("override") or None)
            for one in listed(reply, "templates")
        )
        self._templates = GateTemplates((row.spec.name, row) for row in found)
        self._rows = {name: _gate_row(one) for name, one in listed(reply, "gates") if one}
        self._seen = {name for name, _ in listed(reply, "gates")}
        self._page = [self._rows[name] for name in listed(reply, "gate_page")]

    def templates(self) -> GateTemplates:
        return self._templates

    def load(self, names: Iterable[str]) -> dict[str, GateRow]:
        wanted = list(names)
        for name in wanted:
            if name not in self._seen:
                _known(None, f"the gate {name!r}")
        return {name: self._rows[name] for name in wanted if name in self._rows}

    def page(self, _after: str, limit: int) -> list[GateRow]:
        return self._page[:limit]


class _Permits:
    def __init__(self, reply: _Record) -> None:
        self._at = {
            name: Holders(count, amount, [_tuple_row(PermitRow, one) for one in first])
            for name, count, amount, first in listed(reply, "permits")
        }
        self._sums = [(name, amount) for name, amount in listed(reply, "sums")]
        self._page = [_tuple_row(PermitRow, one) for one in listed(reply, "permit_page")]
        self._of_held = [_tuple_row(PermitRow, one) for one in listed(reply, "permits_of_held")]

    def at(self, *_: object) -> Mapping[str, Holders]:
        return self._at

    def sums(self, *_: object) -> list[tuple[str, int]]:
        return self._sums

    def page(self, *_: object) -> list[PermitRow]:
        return self._page

    def of_jobs(self, *_: object) -> list[PermitRow]:
        return self._of_held


@dataclass(frozen=True, slots=True)
class _Counted:
    """A rate's starts in the window, and the start that has to leave it to make room for one."""

    total: int = 0
    leaves: int | None = None


class _Starts:
    def __init__(self, reply: _Record) -> None:
        self._gates = {
            name: _Counted(total, leaves if leaves is not False else None)
            for name, total, leaves in listed(reply, "starts")
        }
        self._all = {
            name: [(at, number) for at, number in starts]
            for name, starts in listed(reply, "every_start")
        }

    def total(self, gate: str, _after_at: int, _stored: int) -> int:
        return self._gates.get(gate, _Counted()).total

    def oldest(self, gate: str, _after_at: int, limit: int) -> list[tuple[int, int]]:
        """Return all starts if the reply has them; otherwise the one that makes room."""
        if gate in self._all:
            return self._all[gate]
        at = self._gates.get(gate, _Counted()).leaves
        return [] if at is None else [(at, limit)]


class _Lanes:
    def __init__(self, reply: _Record) -> None:
        self._rows = {one["name"]: _lane_row(one) for one in listed(reply, "lanes")}
        self._names = sorted(listed(reply, "lane_names"))
        self._starts = {name: dict(starts) for name, starts in listed(reply, "tenant_starts")}

    def names(self) -> list[str]:
        return self._names

    def load(self, names: Iterable[str]) -> dict[str, LaneRow]:
        return {name: self._rows[name] for name in names if name in self._rows}

    def all_tenant_starts(self, lane: str) -> dict[str, int]:
        return self._starts[lane]


class _Counts:
    def __init__(self, reply: _Record) -> None:
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
    def __init__(self, reply: _Record) -> None:
        found = (_key_row(one) for one in listed(reply, "dedupe"))
        self._rows = {(row.tenant, row.key): row for row in found}

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        return {place: self._rows[place] for place in keys if place in self._rows}


class _Signals:
    def __init__(self, reply: _Record) -> None:
        self._known = [(key, job, run) for key, job, run in listed(reply, "known")]
        self._received = [_signal_row(one) for one in listed(reply, "events")]

    def known_as(self, *_: object) -> list[tuple[str, str, int]]:
        return self._known

    all_known = known_as

    def all_received(self, _after: object, limit: int) -> list[SignalRow]:
        return self._received[:limit]


class _Workers:
    def __init__(self, reply: _Record) -> None:
        self._rows = {one["id"]: _row(WorkerRow, one) for one in listed(reply, "workers")}

    def all(self) -> list[WorkerRow]:
        return [self._rows[name] for name in sorted(self._rows)]

    def load(self, worker: str) -> WorkerRow | None:
        return self._rows.get(worker)


class _Entries:
    def __init__(self, reply: _Record) -> None:
        self._rows = {one["name"]: _entry_row(one) for one in listed(reply, "entries")}

    def load(self, name: str) -> EntryRow | None:
        return self._rows.get(name)

    def all(self) -> list[EntryRow]:
        return [self._rows[name] for name in sorted(self._rows)]


class _Tokens:
    def __init__(self, reply: _Record) -> None:
        self._rows = [_row(TokenRow, one) for one in listed(reply, "tokens")]

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        wanted = set(ids)
        return {row.spec.id: row for row in self._rows if row.spec.id in wanted}

    def all(self) -> list[TokenRow]:
        return self._rows


class _Trail:
    def __init__(self, reply: _Record) -> None:
        self._page = [_tuple_row(TrailRow, one) for one in listed(reply, "trail")]
        self._since = [_tuple_row(TrailRow, one) for one in listed(reply, "since")]
        self._of = {
            target: [_tuple_row(TrailRow, one) for one in lines]
            for target, lines in listed(reply, "notes")
        }

    def page(self, target: str | None, _before: int | None, limit: int) -> list[TrailRow]:
        if target is not None and target in self._of:
            return self._of[target][:limit]
        return self._page

    def of_targets(self, targets: Sequence[str], limit: int) -> Mapping[str, list[TrailRow]]:
        return {target: self.page(target, None, limit) for target in targets}

    def since(self, *_: object) -> list[TrailRow]:
        return self._since


class _Facts:
    def __init__(self, reply: _Record) -> None:
        self._facts: _Record = paired(reply, "facts")

    def identity(self) -> str:
        # A store has no identity until something is written.
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
    """Return a value that the script collected.

    Raises:
        InvariantBroken: the script did not collect it.
    """
    if value is None:
        message = f"a read needs {what}, which its script did not collect"
        raise InvariantBroken(message)
    return value
