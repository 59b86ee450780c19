"""Lanes, counts, keys, signals, workers, entries, the trail, facts and tokens in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice

from sortedcontainers import SortedDict

from headway.core.state import State
from headway.stores.ledger.rows import EntryRow, KeyRow, LaneRow, SignalRow, TrailRow, WorkerRow
from headway.stores.ledger.tables import TokenRow
from headway.stores.memory.journal import Journal
from headway.stores.memory.timing import StepTime

ANSWERS = 10_000
"""How many replies to requests are kept."""


class MemoryKeys:
    """See `KeyTable`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: dict[tuple[str, str], KeyRow] = {}

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        return {place: self._rows[place] for place in keys if place in self._rows}

    def save(self, rows: Iterable[KeyRow]) -> None:
        for row in rows:
            self._journal.put(self._rows, (row.tenant, row.key), row)

    def forget(self, tenant: str, key: str, job: str) -> None:
        """Remove the key of a removed job."""
        row = self._rows.get((tenant, key))
        if row is not None and row.job == job:
            self._journal.drop(self._rows, (tenant, key))


class MemorySignals:
    """See `SignalTable`."""

    def __init__(self, time: StepTime, journal: Journal) -> None:
        self._time = time
        self._journal = journal
        self._known: dict[str, tuple[str, int]] = {}
        self._keys_of: dict[str, list[str]] = {}
        self._received: dict[str, dict[str, SignalRow]] = {}
        self._kept: SortedDict[tuple[int, str, str], SignalRow] = SortedDict()
        # Arrival order of kept events, which dicts lose if an undone step adds an event back.
        self._arrivals: dict[tuple[str, str], int] = {}
        self._numbers = count(1)

    def known(self, key: str) -> tuple[str, int] | None:
        return self._known.get(key)

    def make_known(self, key: str, job: str, run: int) -> None:
        self._journal.put(self._known, key, (job, run))
        self._journal.put(self._keys_of, job, [*self._keys_of.get(job, ()), key])

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        keys = dict.fromkeys(key for job in jobs for key in self._keys_of.get(job, ()))
        found = ((key, *self._known[key]) for key in keys if key in self._known)
        return [one for one in found if one[1] in jobs]

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        keys = sorted(key for key in self._known if key > after)[:limit]
        return [(key, *self._known[key]) for key in keys]

    def all_received(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        places = [(scope, event) for scope, events in self._received.items() for event in events]
        wanted = sorted(place for place in places if place > after)[:limit]
        return [replace(self._received[scope][event]) for scope, event in wanted]

    def received(self, scope: str, event: str) -> SignalRow | None:
        row = self._received.get(scope, {}).get(event)
        return None if row is None else replace(row)

    def save(self, row: SignalRow) -> None:
        self.drop([row])
        row = replace(row)
        self._journal.put(self._received.setdefault(row.scope, {}), row.event, row)
        if row.kept_until is not None:
            self._journal.put(self._kept, (row.kept_until, row.scope, row.event), row)
            self._journal.put(self._arrivals, (row.scope, row.event), next(self._numbers))

    def kept(self, key: str) -> list[SignalRow]:
        rows = [row for row in self._received.get(key, {}).values() if row.kept_until is not None]
        # An import is ordered by event, so the number alone would not show which came first.
        rows.sort(key=lambda row: (row.at, self._arrivals[key, row.event]))
        return [replace(row) for row in rows]

    def kept_count(self) -> int:
        return len(self._kept)

    def drop(self, rows: Iterable[SignalRow]) -> None:
        for row in rows:
            old = self._received.get(row.scope, {}).get(row.event)
            if old is None:
                continue
            self._journal.drop(self._received[row.scope], row.event)
            if old.kept_until is not None:
                self._journal.drop(self._kept, (old.kept_until, row.scope, row.event))
                self._journal.drop(self._arrivals, (row.scope, row.event))

    def stale(self, limit: int) -> list[SignalRow]:
        old = self._kept.irange(maximum=(self._time.now + 1, "", ""))
        return [replace(self._kept[place]) for place in islice(old, limit)]

    def forget_job(self, job: str) -> None:
        """Remove the signal keys and events of a removed job."""
        for key in self._keys_of.get(job, ()):
            if self._known.get(key, ("", 0))[0] == job:
                self._journal.drop(self._known, key)
        self._journal.drop(self._keys_of, job)
        self._journal.drop(self._received, job)


class MemoryWorkers:
    """See `WorkerTable`."""

    def __init__(self, time: StepTime, journal: Journal) -> None:
        self._time = time
        self._journal = journal
        self._rows: dict[str, WorkerRow] = {}

    def load(self, worker: str) -> WorkerRow | None:
        row = self._rows.get(worker)
        return None if row is None else replace(row)

    def save(self, row: WorkerRow) -> None:
        self._journal.put(self._rows, row.id, replace(row))

    def remove(self, workers: Sequence[str]) -> None:
        for worker in workers:
            self._journal.drop(self._rows, worker)

    def lapsed(self, limit: int) -> list[WorkerRow]:
        now = self._time.now
        due = (row for row in self._rows.values() if not row.lapsed and row.lease_until <= now)
        return [
            replace(row)
            for row in islice(sorted(due, key=lambda row: (row.lease_until, row.id)), limit)
        ]

    def all(self) -> list[WorkerRow]:
        return [replace(row) for _, row in sorted(self._rows.items())]


class MemoryEntries:
    """See `EntryTable`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: dict[str, EntryRow] = {}

    def load(self, name: str) -> EntryRow | None:
        row = self._rows.get(name)
        return None if row is None else replace(row)

    def all(self) -> list[EntryRow]:
        return [replace(row) for _, row in sorted(self._rows.items())]

    def save(self, row: EntryRow) -> None:
        self._journal.put(self._rows, row.name, replace(row))


class MemoryTrail:
    """See `TrailTable`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: list[TrailRow] = []
        self._of: dict[str, list[TrailRow]] = {}
        self._answers: dict[str, bytes] = {}

    def add(self, rows: Sequence[TrailRow]) -> None:
        for row in rows:
            kept = row._replace(seq=self._rows[-1].seq + 1 if self._rows else 1)
            lines = self._of.setdefault(row.target, [])
            for table in (self._rows, lines):
                table.append(kept)
                self._journal.note(table.pop)

    def remove(self, rows: Sequence[TrailRow]) -> None:
        gone = list(rows)
        del self._rows[: len(gone)]
        self._journal.note(lambda: self._rows.__setitem__(slice(0, 0), gone))
        for target in dict.fromkeys(row.target for row in gone):
            left = [row for row in self._of[target] if row.seq > gone[-1].seq]
            if left:
                self._journal.put(self._of, target, left)
            else:
                self._journal.drop(self._of, target)

    def page(self, target: str | None, before: int | None, limit: int) -> list[TrailRow]:
        rows = self._rows if target is None else self._of.get(target, [])
        newest = (row for row in reversed(rows) if before is None or row.seq < before)
        return list(islice(newest, limit))

    def of_targets(self, targets: Sequence[str], limit: int) -> Mapping[str, list[TrailRow]]:
        return {target: self.page(target, None, limit) for target in targets}

    def since(self, after: int, limit: int) -> list[TrailRow]:
        start = bisect_right(self._rows, after, key=lambda row: row.seq)
        return self._rows[start : start + limit]

    def answer(self, request: str) -> bytes | None:
        return self._answers.get(request)

    def keep_answer(self, request: str, answer: bytes) -> None:
        self._journal.put(self._answers, request, answer)
        if len(self._answers) > ANSWERS:
            self._journal.drop(self._answers, next(iter(self._answers)))


class MemoryFacts:
    """See `FactTable`."""

    def __init__(self, time: StepTime, journal: Journal, identity: str) -> None:
        self._time = time
        self._journal = journal
        self._identity = identity
        self._numbers: dict[str, int] = {"epoch": 1, "revision": 0}
        self._leaders: dict[str, tuple[str, int, int]] = {}

    def identity(self) -> str:
        return self._identity

    def epoch(self) -> int:
        return self._numbers["epoch"]

    def revision(self) -> int:
        return self._numbers["revision"]

    def bump_revision(self) -> int:
        self._journal.put(self._numbers, "revision", self._numbers["revision"] + 1)
        return self._numbers["revision"]

    def clock_ahead_ms(self) -> int:
        return self._time.ahead_ms()

    def suspicion(self) -> None:
        # The store ends with its process, so it cannot be replaced.
        return None

    def leader(self, role: str) -> tuple[str, int, int] | None:
        return self._leaders.get(role)

    def set_leader(self, role: str, holder: str, term: int, until_at: int) -> None:
        self._journal.put(self._leaders, role, (holder, term, until_at))


class MemoryLanes:
    """See `LaneTable`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: dict[str, LaneRow] = {}
        self._starts: dict[tuple[str, str], int] = {}

    def load(self, names: Iterable[str]) -> dict[str, LaneRow]:
        return {name: replace(self._rows[name]) for name in names if name in self._rows}

    def ensure(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._rows:
                self._journal.put(self._rows, name, LaneRow(name=name))

    def save(self, row: LaneRow) -> None:
        self._journal.put(self._rows, row.name, replace(row))

    def names(self) -> list[str]:
        return sorted(self._rows)

    def tenant_starts(self, lane: str, tenants: Iterable[str]) -> dict[str, int]:
        found = ((tenant, self._starts.get((lane, tenant))) for tenant in tenants)
        return {tenant: number for tenant, number in found if number is not None}

    def all_tenant_starts(self, lane: str) -> dict[str, int]:
        return {tenant: n for (name, tenant), n in self._starts.items() if name == lane}

    def save_tenant_starts(self, lane: str, starts: Mapping[str, int]) -> None:
        for tenant, number in starts.items():
            self._journal.put(self._starts, (lane, tenant), number)


class MemoryCounts:
    """See `CountTable`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lanes: dict[str, dict[State, int]] = {}
        self._states: dict[State, int] = {}
        self._totals: dict[str, int] = {}

    def move(self, lane: str, old: State | None, new: State | None, n: int = 1) -> None:
        counts = self._lanes.setdefault(lane, {})
        for state, change in ((old, -n), (new, n)):
            if state is not None:
                self._journal.put(counts, state, counts.get(state, 0) + change)
                self._journal.put(self._states, state, self._states.get(state, 0) + change)

    def happened(self, what: str, n: int = 1) -> None:
        if n:
            self._journal.put(self._totals, what, self._totals.get(what, 0) + n)

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, dict[State, int]]:
        return {lane: dict(self._lanes[lane]) for lane in lanes if lane in self._lanes}

    def of_states(self) -> dict[State, int]:
        return dict(self._states)

    def totals(self) -> dict[str, int]:
        return dict(self._totals)


class MemoryTokens:
    """See `TokenTable`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: dict[str, TokenRow] = {}

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        return {one: replace(self._rows[one]) for one in ids if one in self._rows}

    def all(self) -> list[TokenRow]:
        return [replace(row) for row in self._rows.values()]

    def count(self) -> int:
        return len(self._rows)

    def save(self, rows: Iterable[TokenRow]) -> None:
        for row in rows:
            self._journal.put(self._rows, row.spec.id, replace(row))

    def remove(self, token: str) -> None:
        self._journal.drop(self._rows, token)
