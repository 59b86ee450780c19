"""A question; its type says what the answer is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Reply = TypeVar("Reply")


@dataclass(frozen=True, kw_only=True, slots=True)
class Query(Generic[Reply]):
    """A question; its type says what the answer is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[Reply]):
    """Some rows, and where to go on.

    Attributes:
        rows: in the listing's order.
        cursor: to be given to the next call; None at the end. A page may be short or even empty
            and yet have a cursor: a bounded number of rows was looked at.
    """

    rows: tuple[Reply, ...]
    cursor: str | None
