"""The tables of lanes, fairness and counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from headway.core.state import State
from headway.stores.ledger.rows import LaneRow


class LaneTable(Protocol):
    """Lanes; each is created with its first job."""

    def load(self, names: Iterable[str]) -> dict[str, LaneRow]:
        """Return copies of the lanes that have a row, by name."""
        ...

    def ensure(self, names: Iterable[str]) -> None:
        """Create the lanes that do not exist."""
        ...

    def save(self, row: LaneRow) -> None:
        """Write a lane."""
        ...

    def names(self) -> list[str]:
        """Return all lanes, by name."""
        ...

    def tenant_starts(self, lane: str, tenants: Iterable[str]) -> dict[str, int]:
        """Return the virtual starts of the tenants that have any."""
        ...

    def all_tenant_starts(self, lane: str) -> dict[str, int]:
        """Return the virtual starts of all tenants of a lane."""
        ...

    def save_tenant_starts(self, lane: str, starts: Mapping[str, int]) -> None:
        """Write virtual starts."""
        ...


class CountTable(Protocol):
    """Maintained counts, so that nothing has to be scanned."""

    def move(self, lane: str, old: State | None, new: State | None, n: int = 1) -> None:
        """Count jobs of a lane that went from one state to another; None is outside the store."""
        ...

    def happened(self, what: str, n: int = 1) -> None:
        """Add to a total since the store was created."""
        ...

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, dict[State, int]]:
        """Return the numbers of jobs by lane and state."""
        ...

    def of_states(self) -> dict[State, int]:
        """Return the numbers of jobs of the whole store by state."""
        ...

    def totals(self) -> dict[str, int]:
        """Return the totals."""
        ...
