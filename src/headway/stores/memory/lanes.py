"""Lanes, fairness and counts in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headway.core.state import State
from headway.stores.ledger.rows import LaneRow
from headway.stores.memory.journal import Journal


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
