"""Whole numbers that change with nearly every step: kept together, so that one page is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headway.stores.sqlite.database import Database

HIGH_WATER = -1
"""The highest time that was ever used, ms."""
LAST_SEQ = -2
"""The arrival number given last."""
REVISION = -3
"""Of the definitions, as the contract tells it."""
DEFINITIONS = -4
"""Grows whenever a declared gate is written, so that other processes read them again."""
EPOCH = -5
WAKES = -6
"""Grows with each step that may have made something claimable."""
KEPT_EVENTS = -7
IDENTITY = -8
"""Random, written once."""
SCHEMA = -9
"""The number of the last migration, so that a running process sees that it was overtaken."""
EPOCH_AT = -10
"""When the present epoch was begun, ms; 0 for the first."""
SUSPECT = -11
"""1 after a process found the store to be another one or older, until a new epoch is begun."""
FREE_CLOCK = -12
"""1 if the file was created under a clock of its own, as in a test, which is never checked."""
_TOTALS = -16
"""Totals lie below, one for each word."""

_READ = "SELECT n FROM number WHERE key = ?"
_READ_FACTS = "SELECT key, n FROM number WHERE key BETWEEN -16 AND -1"
_READ_LANES = "SELECT key, n FROM number WHERE key > 0"
_READ_TOTALS = "SELECT key, n FROM number WHERE key < -16"
_WRITE = "INSERT INTO number VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET n = excluded.n"

Mark = dict[int, int]
Belongs = Callable[[int], bool]


class Numbers:
    """The numbers as one connection sees them; written once, when the step ends."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[int, int] = {}
        self._changed: dict[int, int] = {}

    def get(self, key: int) -> int:
        """A number; 0 where none was ever written."""
        found = self._changed.get(key)
        if found is None:
            found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._db.execute(_READ, (key,)).get or 0
        return found

    def load_facts(self) -> None:
        """Reads the store's own numbers in one go."""
        self._known.update(self._db.execute(_READ_FACTS))

    def put(self, key: int, n: int) -> None:
        """Sets a number."""
        self._changed[key] = n

    def add(self, key: int, n: int) -> int:
        """Adds to a number.

        Returns:
            What it is now.
        """
        new = self.get(key) + n
        self._changed[key] = new
        return new

    def of_lanes(self) -> Iterator[tuple[int, int]]:
        """The jobs of each lane in each state, by `lane_key`."""
        return self._several(_READ_LANES, lambda key: key > 0)

    def of_totals(self) -> Iterator[tuple[int, int]]:
        """The totals, by `total_key`."""
        return self._several(_READ_TOTALS, lambda key: key < _TOTALS)

    def _several(self, sql: str, belongs: Belongs) -> Iterator[tuple[int, int]]:
        found: dict[int, int] = dict(self._db.execute(sql))
        found.update((key, n) for key, n in self._changed.items() if belongs(key))
        return iter(sorted(found.items()))

    @property
    def changed(self) -> bool:
        """Whether the step has changed any."""
        return bool(self._changed)

    def write(self) -> None:
        """Writes what the step has changed."""
        self._db.executemany(_WRITE, self._changed.items())

    def keep(self) -> None:
        """The step is committed."""
        self._known.update(self._changed)
        self._changed.clear()

    def forget(self) -> None:
        """What is known may be wrong: somebody else wrote, or the step was rolled back."""
        self._known.clear()
        self._changed.clear()

    def mark(self) -> Mark:
        """Where a part of the step begins."""
        return dict(self._changed)

    def back_to(self, mark: Mark) -> None:
        """That part was rolled back."""
        self._changed = mark
