"""What became of an import."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_FAULTS = 100
"""Faults that are told; further ones are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What is wrong with a row.

    Attributes:
        row: as a spreadsheet numbers it: the header is 1.
        what: is wrong.
    """

    row: int
    what: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportReport:
    """What became of an import.

    Attributes:
        rows: that were read, without the header.
        added: records that are new.
        changed: records that were there, and are different now.
        unchanged: records that were there as the row says.
        refused: rows that were not written.
        faults: the first hundred of what was wrong, by row.
    """

    rows: int
    added: int
    changed: int
    unchanged: int
    refused: int
    faults: tuple[Fault, ...]


@dataclass(slots=True)
class Count:
    """An import, as far as it has gone."""

    rows: int = 0
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    refused: int = 0
    faults: list[Fault] = field(default_factory=list[Fault])

    def refuse(self, row: int, what: str) -> None:
        """Counts a fault."""
        self.refused += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(Fault(row=row, what=what))

    def report(self) -> ImportReport:
        """What is told of it."""
        return ImportReport(
            rows=self.rows,
            added=self.added,
            changed=self.changed,
            unchanged=self.unchanged,
            refused=self.refused,
            faults=tuple(sorted(self.faults, key=lambda one: one.row)),
        )
