"""The tables of gates, permits and starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from headway.stores.ledger.gaterows import GateRow, PermitRow, TemplateRow


class GateTable(Protocol):
    """What is declared, and each gate of which there is something to remember."""

    def templates(self) -> Mapping[str, TemplateRow]:
        """All declared gates by name; not to be changed in place."""
        ...

    def save_template(self, row: TemplateRow) -> None:
        """Writes a declared gate."""
        ...

    def load(self, names: Iterable[str]) -> dict[str, GateRow]:
        """The gates that have a row, by name; a copy each."""
        ...

    def save(self, rows: Iterable[GateRow]) -> None:
        """Writes gates; one that is idle is removed."""
        ...

    def page(self, after: str, limit: int) -> list[GateRow]:
        """Gates that have a row, by name, those above `after`."""
        ...

    def due_timers(self, limit: int) -> list[str]:
        """Gates whose timer has come, earliest first."""
        ...

    def next_timer(self) -> int | None:
        """When the next timer comes."""
        ...

    def short_horizons(self, before_at: int, limit: int) -> list[GateRow]:
        """Hours that are known only up to a moment before this one."""
        ...


class PermitTable(Protocol):
    """Permits: rows that name their holders; a job holds at most one of a gate."""

    def add(self, rows: Sequence[PermitRow]) -> None:
        """Adds permits."""
        ...

    def of_jobs(self, jobs: Iterable[str]) -> list[PermitRow]:
        """The permits that jobs hold."""
        ...

    def remove(self, rows: Sequence[PermitRow]) -> None:
        """Removes these."""
        ...

    def at(self, gate: str, limit: int) -> list[PermitRow]:
        """The first holders of a gate, oldest first."""
        ...

    def count(self, gate: str) -> tuple[int, int]:
        """How many permits rows a gate has, and the sum of their amounts."""
        ...

    def sums(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Gates that have permits out, by name, those above `after`, with the amounts' sum."""
        ...

    def page(self, after: tuple[str, str], limit: int) -> list[PermitRow]:
        """Permits by (gate, job), those above `after`."""
        ...


class StartTable(Protocol):
    """The starts that rates count: one number for each gate and millisecond."""

    def add(self, counts: Mapping[str, int]) -> None:
        """Counts starts now, by gate."""
        ...

    def put(self, gate: str, moments: Mapping[int, int]) -> None:
        """Writes how many starts there were at these moments, whatever was counted there."""
        ...

    def trim(self, gate: str, until_at: int) -> int:
        """Forgets the starts up to a moment, that one included.

        Returns:
            How many starts were forgotten.
        """
        ...

    def total(self, gate: str, after_at: int) -> int:
        """How many starts are later than a moment."""
        ...

    def oldest(self, gate: str, after_at: int, limit: int) -> list[tuple[int, int]]:
        """The first (moment, number) later than a moment, oldest first."""
        ...
