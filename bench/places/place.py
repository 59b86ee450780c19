"""Where one measurement happens: an empty store, made for it and gone after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """An empty store.

    Attributes:
        url: of the store; peers make of it what they need.
        folder: an empty one, for what else the measurement writes.
        beside: the URL of a further empty store in the same server or folder, by a name.
        size: bytes that all stores of this place take now.
    """

    url: str
    folder: Path
    beside: Callable[[str], str]
    size: Callable[[], int]


class Ground(Protocol):
    """A kind of store, and the server that runs it.

    Attributes:
        name: as the command says it.
        store: what runs there: `sqlite`, `postgres` or `redis`.
        title: over its tables, with how durable it is.
        version: of the server.
    """

    name: str
    store: str
    title: str
    version: tuple[int, ...]

    def facts(self) -> dict[str, str]:
        """What a reader must know."""
        ...

    def fresh(self, folder: Path) -> AbstractContextManager[Place]:
        """An empty store; at most one at a time."""
        ...


class NoGround(Exception):
    """The store cannot be measured here; says why."""
