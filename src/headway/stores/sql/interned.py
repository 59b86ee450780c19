"""Interned values: each is stored once, under a number; a process caches a bounded number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

Value = TypeVar("Value")

MOST_KNOWN = 100_000
"""Most values of one table that a process caches; over years there may be millions of tenants."""


class Interned(ABC, Generic[Value]):
    """Values of one table and their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}
        self._values: dict[int, Value] = {}
        self._last: tuple[Value | None, int] = (None, 0)

    def number(self, value: Value) -> int:
        """Return the number of a value; a new value gets one."""
        last, number = self._last
        if value is last:
            # Hashing a policy or a flow costs more than everything below.
            return number
        found = self._numbers.get(value)
        if found is None:
            found = self._make(value)
        self._last = (value, found)
        return found

    @abstractmethod
    def _make(self, value: Value) -> int:
        """Return the number of a value that is not cached; a new value gets one."""

    @abstractmethod
    def find(self, value: Value) -> int | None:
        """Return the number of a value; None if it has none."""

    @abstractmethod
    def value(self, number: int) -> Value:
        """Return the value of a number.

        Raises:
            KeyError: the number is unknown.
        """

    @abstractmethod
    def read(self, numbers: Iterable[int]) -> None:
        """Read the values of these numbers in one batch, if that saves round trips."""

    def _remember(self, value: Value, number: int) -> None:
        if len(self._values) >= MOST_KNOWN and number not in self._values:
            # Drop the oldest half; values in use are read again, and become the newest.
            for old in list(self._values)[: MOST_KNOWN // 2]:
                self._numbers.pop(self._values.pop(old), None)
        self._numbers[value] = number
        self._values[number] = value

    def forget(self) -> None:
        """Drop the cache, because the store may have been replaced."""
        self._last = (None, 0)
        self._numbers = {}
        self._values = {}
