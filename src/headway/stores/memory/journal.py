"""The undo journal of a step, used if the verb raises."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Journal:
    """Undoes the writes of the current step."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def note(self, undo: Callable[[], object]) -> None:
        """Record how to undo the last write."""
        self._undo.append(undo)

    def put(self, table: MutableMapping[Key, Value], key: Key, value: Value) -> None:
        """Set a value."""
        if key in table:
            old = table[key]
            self._undo.append(lambda: table.__setitem__(key, old))
        else:
            self._undo.append(lambda: table.pop(key, None))
        table[key] = value

    def drop(self, table: MutableMapping[Key, Value], key: Key) -> None:
        """Remove a key, if it is there."""
        if key in table:
            old = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, old))

    def keep(self) -> None:
        """Commit: discard the undo records."""
        self._undo.clear()

    def roll_back(self) -> None:
        """Undo all writes, last one first."""
        while self._undo:
            self._undo.pop()()
