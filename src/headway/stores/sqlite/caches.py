"""What a connection caches: counters, and the numbers of interned values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from headway.stores.sql.interned import Interned, Thing
from headway.stores.sqlite.database import Database

LAST_SEQ = -2
"""The key of the last arrival number; this store's own keys, beside those that are shared."""
WAKES = -6
"""Grows with each step that may have made something claimable."""
SUSPECT = -11
"""1 after a process found the store replaced or restored, until a new epoch begins."""
FREE_CLOCK = -12
"""1 if the file was created under its own clock, as in a test, which is never checked."""

_READ = "SELECT n FROM number WHERE key = ?"
_READ_FACTS = "SELECT key, n FROM number WHERE key BETWEEN -16 AND -1"
_READ_BETWEEN = "SELECT key, n FROM number WHERE key BETWEEN ? AND ?"
_WRITE = "INSERT INTO number VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET n = excluded.n"

Mark = dict[int, int]


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

    def between(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the numbers of all keys from `first` to `last`, in order."""
        found: dict[int, int] = dict(self._db.execute(_READ_BETWEEN, (first, last)))
        found.update((key, n) for key, n in self._changed.items() if first <= key <= last)
        return sorted(found.items())

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


class SqliteInterned(Interned[Thing]):
    """Values and their numbers, which never change once committed.

    Args:
        statements: select the number of a code, select the code of a number, insert a code.
        encode: gives the code of a value; equal values have equal codes.
    """

    def __init__(
        self,
        db: Database,
        statements: tuple[str, str, str],
        encode: Callable[[Thing], str | bytes],
        decode: Callable[[Any], Thing],
    ) -> None:
        super().__init__()
        self._db = db
        self._find, self._read, self._add = statements
        self._encode = encode
        self._decode = decode
        self._fresh: list[tuple[Thing, int]] = []

    def find(self, thing: Thing) -> int | None:
        """Return the number of a value; None if it has none."""
        number = self._numbers.get(thing)
        if number is None:
            number = self._db.execute(self._find, (self._encode(thing),)).get
            if number is not None:
                self._remember(thing, number)
        return number

    def _make(self, thing: Thing) -> int:
        number = self.find(thing)
        if number is None:
            number = cast("int", self._db.execute(self._add, (self._encode(thing),)).get)
            self._remember(thing, number)
            self._fresh.append((thing, number))
        return number

    def thing(self, number: int) -> Thing:
        """Return the value of a number.

        Raises:
            KeyError: the number is unknown.
        """
        known = self._things.get(number)
        if known is None:
            code = self._db.execute(self._read, (number,)).get
            if code is None:
                raise KeyError(number)
            known = self._decode(code)
            self._remember(known, number)
        return known

    def read(self, numbers: Iterable[int]) -> None:
        """Do nothing: reading several values at once saves nothing here."""

    def keep(self) -> None:
        """Keep the new numbers; the step is committed."""
        self._fresh.clear()

    def mark(self) -> int:
        """Return a mark to roll back to."""
        return len(self._fresh)

    def back_to(self, mark: int) -> None:
        """Remove what was added since the mark."""
        self._last = (None, 0)
        for thing, number in self._fresh[mark:]:
            self._numbers.pop(thing, None)
            self._things.pop(number, None)
        del self._fresh[mark:]
