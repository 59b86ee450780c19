"""The tables of gates, permits and starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from headway.stores.ledger.gaterows import GateRow, Holders, PermitRow, TemplateRow


class GateTable(Protocol):
    """Declared gates, and the instances that have state."""

    def templates(self) -> Mapping[str, TemplateRow]:
        """Return all declared gates by name; do not change them in place."""
        ...

    def save_template(self, row: TemplateRow) -> None:
        """Write a declared gate."""
        ...

    def load(self, names: Iterable[str]) -> dict[str, GateRow]:
        """Return copies of the gates that have a row, by name."""
        ...

    def save(self, rows: Iterable[GateRow]) -> None:
        """Write gates; one that is idle is removed."""
        ...

    def page(self, after: str, limit: int) -> list[GateRow]:
        """Return gates that have a row, by name, those above `after`."""
        ...

    def due_timers(self, limit: int) -> list[str]:
        """Return gates whose timer is due, earliest first."""
        ...

    def next_timer(self) -> int | None:
        """Return when the next timer is due."""
        ...

    def short_horizons(self, before_at: int, limit: int) -> list[GateRow]:
        """Return hours whose intervals end before a moment."""
        ...


class PermitTable(Protocol):
    """Permits, with their holders; a job holds at most one of a gate."""

    def add(self, rows: Sequence[PermitRow]) -> None:
        """Add permits."""
        ...

    def of_jobs(self, jobs: Iterable[str]) -> list[PermitRow]:
        """Return the permits that jobs hold."""
        ...

    def remove(self, rows: Sequence[PermitRow]) -> None:
        """Remove permits."""
        ...

    def at(self, gates: Sequence[str], limit: int) -> Mapping[str, Holders]:
        """Return what is out of each of these gates, with its first holders, oldest first."""
        ...

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Return gates that have permits, by name, those above `after`, with the amounts' sum."""
        ...

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        """Return permits by (gate, job), those above `after`."""
        ...


class StartTable(Protocol):
    """The starts that rates count: one number for each gate and millisecond."""

    def add(self, counts: Mapping[str, int]) -> None:
        """Count starts now, by gate."""
        ...

    def put(self, gate: str, moments: Mapping[int, int]) -> None:
        """Set the numbers of starts at these moments, replacing earlier numbers."""
        ...

    def trim(self, gate: str, until_at: int) -> int:
        """Remove the starts up to and including a moment.

        Returns:
            How many starts were removed.
        """
        ...

    def total(self, gate: str, after_at: int) -> int:
        """Return how many starts are later than a moment."""
        ...

    def oldest(self, gate: str, after_at: int, limit: int) -> list[tuple[int, int]]:
        """Return the first (moment, number) later than a moment, oldest first."""
        ...
