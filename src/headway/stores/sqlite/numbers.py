"""Counters that nearly every step changes, kept together so that one page is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headway.stores.sqlite.database import Database

HIGH_WATER = -1
"""The highest time that was ever used, ms."""
LAST_SEQ = -2
"""The last arrival number."""
REVISION = -3
"""Of the definitions, as in the contract."""
DEFINITIONS = -4
"""Grows whenever a declared gate is written, so that other processes reload them."""
EPOCH = -5
WAKES = -6
"""Grows with each step that may have made something claimable."""
KEPT_EVENTS = -7
IDENTITY = -8
"""Random, written once."""
SCHEMA = -9
"""The number of the last migration, so that a running process notices a newer schema."""
EPOCH_AT = -10
"""When the current epoch began, ms; 0 for the first."""
SUSPECT = -11
"""1 after a process found the store replaced or restored, until a new epoch begins."""
FREE_CLOCK = -12
"""1 if the file was created under its own clock, as in a test, which is never checked."""
_TOTALS = -16
"""Keys of totals are below, one for each name."""

_READ = "SELECT n FROM number WHERE key = ?"
_READ_FACTS = "SELECT key, n FROM number WHERE key BETWEEN -16 AND -1"
_READ_LANES = "SELECT key, n FROM number WHERE key > 0"
_READ_TOTALS = "SELECT key, n FROM number WHERE key < -16"
_WRITE = "INSERT INTO number VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET n = excluded.n"

Mark = dict[int, int]
Belongs = Callable[[int], bool]


class Numbers:
    """The numbers in one connection; changes are written once, at the end of the step."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[int, int] = {}
        self._changed: dict[int, int] = {}

    def get(self, key: int) -> int:
        """Return a number; 0 if it was never written."""
        found = self._changed.get(key)
        if found is None:
            found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._db.execute(_READ, (key,)).get or 0
        return found

    def load_facts(self) -> None:
        """Read the store's own numbers at once."""
        self._known.update(self._db.execute(_READ_FACTS))

    def put(self, key: int, n: int) -> None:
        """Set a number."""
        self._changed[key] = n

    def add(self, key: int, n: int) -> int:
        """Add to a number, and return it."""
        new = self.get(key) + n
        self._changed[key] = new
        return new

    def of_lanes(self) -> Iterator[tuple[int, int]]:
        """Return the jobs of each lane in each state, by `lane_key`."""
        return self._several(_READ_LANES, lambda key: key > 0)

    def of_totals(self) -> Iterator[tuple[int, int]]:
        """Return the totals, by `total_key`."""
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
        """Write what the step has changed."""
        self._db.executemany(_WRITE, self._changed.items())

    def keep(self) -> None:
        """Keep the changes; the step is committed."""
        self._known.update(self._changed)
        self._changed.clear()

    def forget(self) -> None:
        """Drop the cache after another connection's write or a rollback."""
        self._known.clear()
        self._changed.clear()

    def mark(self) -> Mark:
        """Return a mark to roll back to."""
        return dict(self._changed)

    def back_to(self, mark: Mark) -> None:
        """Undo the changes since the mark."""
        self._changed = mark
