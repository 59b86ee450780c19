"""Interned values: what many rows share is stored once, by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from headway.stores.sqlite.database import Database

Thing = TypeVar("Thing")


class Interned(Generic[Thing]):
    """Values and their numbers, which never change once committed.

    Args:
        find: selects the number by the thing's code.
        read: selects the code by the number.
        add: inserts a code and returns its number.
        encode: gives the code of a thing; equal things have equal codes.
        decode: gives the thing of a code.
    """

    def __init__(
        self,
        db: Database,
        statements: tuple[str, str, str],
        encode: Callable[[Thing], str | bytes],
        decode: Callable[[Any], Thing],
    ) -> None:
        self._db = db
        self._find, self._read, self._add = statements
        self._encode = encode
        self._decode = decode
        self._numbers: dict[Thing, int] = {}
        self._things: dict[int, Thing] = {}
        self._fresh: list[tuple[Thing, int]] = []
        self._last: tuple[Thing | None, int] = (None, 0)

    def find(self, thing: Thing) -> int | None:
        """Return the number of a value; None if it has none."""
        number = self._numbers.get(thing)
        if number is None:
            number = self._db.execute(self._find, (self._encode(thing),)).get
            if number is not None:
                self._remember(thing, number)
        return number

    def number(self, thing: Thing) -> int:
        """Return the number of a value; a new one gets one in this step."""
        if thing is self._last[0]:
            # Hashing a policy or a flow costs more than the rest of this function.
            return self._last[1]
        number = self._numbers.get(thing)
        if number is None:
            number = self.find(thing)
        if number is not None:
            self._last = (thing, number)
        else:
            added: int = self._db.execute(self._add, (self._encode(thing),)).get
            self._remember(thing, added)
            self._fresh.append((thing, added))
            return added
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

    def _remember(self, thing: Thing, number: int) -> None:
        self._numbers[thing] = number
        self._things[number] = thing

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
            del self._numbers[thing]
            del self._things[number]
        del self._fresh[mark:]
