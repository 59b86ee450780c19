"""What the sessions of one store share: what never changes, and what a version stands by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.stores.ledger.fingerprint import FingerprintWatch
from headway.stores.ledger.gaterows import GateRow, TemplateRow
from headway.stores.ledger.rows import LaneRow
from headway.stores.postgres.marks import Marks
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.registry import Registry
from headway.stores.postgres.statement import Asked
from headway.stores.postgres.timing import StoreTime

HABITS = 256
"""Kinds of steps of which it is known what they ask."""


class Templates(NamedTuple):
    """Declared gates, and the number of the definitions with which they were read."""

    version: int
    rows: Mapping[str, TemplateRow]


class Lanes(NamedTuple):
    """Lanes that have a row, and the number with which they were read; levels are not kept."""

    version: int
    rows: dict[str, LaneRow]


@dataclass(slots=True)
class Habit:
    """What a kind of step asked last, so that the next can ask it ahead, in one go.

    Attributes:
        gates: the names of gates that it looked at.
        heads: of how many heads, by flow.
        lanes: which waiting flows, by lane, after which flow, and how many.
        empty: those of the questions to which there was no answer.
    """

    asks: tuple[Asked, ...] = ()
    gates: tuple[str, ...] = ()
    heads: Mapping[int, int] = field(default_factory=dict[int, int])
    lanes: tuple[tuple[str, int, int], ...] = ()
    empty: frozenset[Asked] = frozenset()


class Shared:
    """One for each store of a process.

    Args:
        registry: of flows, policies, lanes and words.

    Attributes:
        identity: of the store that all this was read in.
        templates: declared gates; None while none were read.
        lanes: as far as they were read.
        high_water: the store's, as it was seen or written last.
        hours: gates whose intervals are known, and so have a row that stays.
        marks: of flows, as far as this process has started their jobs.
        habits: of steps, by their kind.
        unfolded: steps since one of this process folded counts.
        forgotten: how often all that was known was forgotten.
    """

    def __init__(self, options: PostgresOptions, registry: Registry, time: StoreTime) -> None:
        self.options = options
        self.registry = registry
        self.time = time
        self.watch = FingerprintWatch()
        self.identity = 0
        self.high_water = 0
        self.templates: Templates | None = None
        self.lanes = Lanes(-1, {})
        self.hours: dict[str, GateRow] = {}
        self.marks = Marks()
        self.habits: dict[object, Habit] = {}
        self.unfolded = 0
        self.forgotten = 0

    def lanes_of(self, version: int) -> dict[str, LaneRow]:
        """The lanes as far as they were read while their number was this; to be added to."""
        lanes = self.lanes
        if lanes.version != version:
            lanes = self.lanes = Lanes(version, {})
        return lanes.rows

    def habit(self, kind: object) -> Habit | None:
        """What a kind of step asked last."""
        return self.habits.get(kind)

    def learn(self, kind: object, habit: Habit) -> None:
        """A step of a kind asked this."""
        if len(self.habits) >= HABITS and kind not in self.habits:
            self.habits.clear()
        self.habits[kind] = habit

    def forget(self) -> None:
        """A connection broke, and what is found behind a new one may be another store."""
        self.forgotten += 1
        self.registry.forget()
        self.identity = 0
        self.high_water = 0
        self.templates = None
        self.lanes = Lanes(-1, {})
        self.hours = {}
        self.marks.clear()
        self.habits.clear()
