"""The journal of a step: how to undo it, should the verb raise."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Journal:
    """Undoes the writes of the step that is under way."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def note(self, undo: Callable[[], object]) -> None:
        """Notes how to undo the write that was just done."""
        self._undo.append(undo)

    def put(self, table: MutableMapping[Key, Value], key: Key, value: Value) -> None:
        """Sets a value."""
        if key in table:
            old = table[key]
            self._undo.append(lambda: table.__setitem__(key, old))
        else:
            self._undo.append(lambda: table.pop(key, None))
        table[key] = value

    def drop(self, table: MutableMapping[Key, Value], key: Key) -> None:
        """Removes a key, if it is there."""
        if key in table:
            old = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, old))

    def keep(self) -> None:
        """The step is done: nothing is undone any more."""
        self._undo.clear()

    def roll_back(self) -> None:
        """Undoes everything, the last write first."""
        while self._undo:
            self._undo.pop()()
