"""The tables of lanes, fairness and counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from headway.core.state import State
from headway.stores.ledger.rows import LaneRow


class LaneTable(Protocol):
    """Lanes come into being with their first job."""

    def load(self, names: Iterable[str]) -> dict[str, LaneRow]:
        """The lanes that have a row, by name; a copy each."""
        ...

    def ensure(self, names: Iterable[str]) -> None:
        """Makes the lanes that do not exist."""
        ...

    def save(self, row: LaneRow) -> None:
        """Writes a lane."""
        ...

    def names(self) -> list[str]:
        """All lanes, by name."""
        ...

    def tenant_starts(self, lane: str, tenants: Iterable[str]) -> dict[str, int]:
        """Virtual starts of the tenants that have any."""
        ...

    def all_tenant_starts(self, lane: str) -> dict[str, int]:
        """Virtual starts of all tenants of a lane."""
        ...

    def save_tenant_starts(self, lane: str, starts: Mapping[str, int]) -> None:
        """Writes virtual starts."""
        ...


class CountTable(Protocol):
    """Counts that are kept, so that nobody has to scan."""

    def move(self, lane: str, old: State | None, new: State | None, n: int = 1) -> None:
        """Counts jobs of a lane that went from one state to another; None is outside."""
        ...

    def happened(self, what: str, n: int = 1) -> None:
        """Adds to a total since the store was made."""
        ...

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, dict[State, int]]:
        """Jobs by lane and state."""
        ...

    def of_states(self) -> dict[State, int]:
        """Jobs of the whole store by state."""
        ...

    def totals(self) -> dict[str, int]:
        """The totals."""
        ...
