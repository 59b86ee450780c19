"""The caches of a connection: counters, and the numbers of interned values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from headway.stores.sql.interned import Interned, Value
from headway.stores.sqlite.database import Database

LAST_SEQ = -2
"""The key of the last arrival number. This and the following are used only by this store."""
WAKES = -6
"""Grows with each step that may have made something claimable."""
SUSPECT = -11
"""1 after a process found the store replaced or restored, until a new epoch starts."""
FREE_CLOCK = -12
"""1 if the file was created under its own clock, as in a test; that clock is never checked."""

READ = "SELECT n FROM number WHERE key = ?"
_READ_FACTS = "SELECT key, n FROM number WHERE key BETWEEN -16 AND -1"
_READ_BETWEEN = "SELECT key, n FROM number WHERE key BETWEEN ? AND ?"
WRITE = "INSERT INTO number VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET n = excluded.n"


class NumberCache(dict[int, int]):
    """A connection's cache of the numbers; each is read from the file when first needed.

    Attributes:
        changed: the numbers that the step has changed; written once, at its end.
    """

    def __init__(self, db: Database) -> None:
        super().__init__()
        self._db = db
        self.changed: dict[int, int] = {}

    def __missing__(self, key: int) -> int:
        """Read a number; 0 if it was never written."""
        found = self[key] = self._db.execute(READ, (key,)).get or 0
        return found

    def load_facts(self) -> None:
        """Read all of the store's own numbers in one query."""
        self.update(self._db.execute(_READ_FACTS))

    def put(self, key: int, n: int) -> None:
        """Set a number."""
        self[key] = self.changed[key] = n

    def add(self, key: int, n: int) -> int:
        """Add to a number, and return the sum."""
        new = self[key] = self.changed[key] = self[key] + n
        return new

    def between(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the numbers of all keys from `first` to `last`, in order."""
        found: dict[int, int] = dict(self._db.execute(_READ_BETWEEN, (first, last)))
        found.update((key, n) for key, n in self.changed.items() if first <= key <= last)
        return sorted(found.items())

    def write(self) -> None:
        """Write the numbers that the step has changed."""
        self._db.executemany(WRITE, self.changed.items())
        self.changed.clear()

    def forget(self) -> None:
        """Drop the cache, after another connection's write or a rollback."""
        self.clear()
        self.changed.clear()

    def back_to(self, changed: dict[int, int]) -> None:
        """Restore an earlier set of the step's changes."""
        self.clear()
        self.changed = changed
        self.update(changed)


class SqliteInterned(Interned[Value]):
    """Values and their numbers, which never change once committed.

    Args:
        column: contains the codes; their numbers are in the column `no`.
        fresh: the numbers assigned by the step, in all such tables of the connection.
        encode: returns the code of a value; equal values have equal codes.
    """

    def __init__(
        self,
        db: Database,
        table: str,
        column: str,
        fresh: Fresh,
        encode: Callable[[Value], str | bytes],
        decode: Callable[[Any], Value],
    ) -> None:
        super().__init__()
        self._db = db
        self._find = f"SELECT no FROM {table} WHERE {column} = ?"  # noqa: S608  (names only)
        self._read = f"SELECT {column} FROM {table} WHERE no = ?"  # noqa: S608  (names only)
        self._add = f"INSERT INTO {table} ({column}) VALUES (?) RETURNING no"  # noqa: S608  (names only)
        self._encode = encode
        self._decode = decode
        self._fresh = fresh

    def find(self, value: Value) -> int | None:
        """Return the number of a value; None if it has none."""
        number = self._numbers.get(value)
        if number is None:
            number = self._db.execute(self._find, (self._encode(value),)).get
            if number is not None:
                self._remember(value, number)
        return number

    def _make(self, value: Value) -> int:
        number = self.find(value)
        if number is None:
            number = cast("int", self._db.execute(self._add, (self._encode(value),)).get)
            self._remember(value, number)
            self._fresh.append((self, value, number))
        return number

    def value(self, number: int) -> Value:
        """Return the value of a number.

        Raises:
            KeyError: the number is unknown.
        """
        known = self._values.get(number)
        if known is None:
            code = self._db.execute(self._read, (number,)).get
            if code is None:
                raise KeyError(number)
            known = self._decode(code)
            self._remember(known, number)
        return known

    def read(self, numbers: Iterable[int]) -> None:
        """Do nothing: reading several values at once would save nothing."""

    def remove(self, value: Value, number: int) -> None:
        """Drop a number that was assigned in a step that is rolled back."""
        self._last = (None, 0)
        self._numbers.pop(value, None)
        self._values.pop(number, None)


Fresh = list[tuple[SqliteInterned[Any], Any, int]]
"""What a step has added: the table, the value, and its number."""
