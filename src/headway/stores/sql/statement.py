"""Statements of a SQL store, what each reads or changes, and the session that executes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from headway.core.job import JobPolicy
from headway.stores.ledger.fingerprint import FingerprintWatch
from headway.stores.ledger.rows import FlowKey
from headway.stores.sql.interned import Interned

Row = tuple[Any, ...]
"""Values of a row, in the order of its columns."""
Rows = list[Row]

HIGH_WATER = -1
"""The key of the highest time ever used, ms. This and the following are keys of numbers."""
REVISION = -3
"""The revision of the definitions, as in the contract."""
DEFINITIONS = -4
"""Grows whenever a declared gate is written, so that other processes reload the gates."""
EPOCH = -5
KEPT_EVENTS = -7
IDENTITY = -8
"""Random, written once."""
SCHEMA = -9
"""The number of the last migration, so that a running process notices a newer schema."""
EPOCH_AT = -10
"""When the current epoch started, ms; 0 for the first."""
FIRST_TOTAL = -16
"""Keys of totals are below this, one for each word; keys of lanes' counts are above 0."""
WIDTH = 8
"""Keys reserved for each lane's counts, one for each state."""


class Select(NamedTuple):
    """A query.

    Attributes:
        text: in PostgreSQL's dialect, with `@` before each table's name and `@now` for the step's
            time.
        of: what it reads, in the terms of `Write.changes`.
        ahead: whether a later step of the same kind may prefetch it.
    """

    text: str
    of: frozenset[str]
    ahead: bool = False


class Write(NamedTuple):
    """A change.

    Attributes:
        text: as in a query.
        changes: what it changes; earlier results of queries `of` it are outdated.
        beside: the mode of the steps that may write it beside exclusive steps, if any.
    """

    text: str
    changes: frozenset[str]
    beside: object = None


ANY_JOB = frozenset({"waiting", "scheduled", "parked", "held", "expiry", "deadline", "job"})
"""Everything that may be cached of jobs."""


def of(*words: str) -> frozenset[str]:
    """Return the set of what a statement reads or changes."""
    return frozenset(words)


def upsert(table: str, columns: str) -> str:
    """Return the statement that writes a row, in place of the one with the same first column."""
    key, *others = names = columns.split(", ")
    places = ", ".join(f"${place}" for place, _ in enumerate(names, 1))
    values = ", ".join(f"{name} = excluded.{name}" for name in others)
    insert = f"INSERT INTO @{table} ({columns}) VALUES ({places})"  # noqa: S608  (names only)
    return f"{insert} ON CONFLICT ({key}) DO UPDATE SET {values}"


class SqlSession(Protocol):
    """One connection within a step, as the shared tables use it."""

    now: int

    @property
    def flows(self) -> Interned[FlowKey]:
        """Flows by number."""
        ...

    @property
    def policies(self) -> Interned[JobPolicy]:
        """Policies by number."""
        ...

    @property
    def lanes(self) -> Interned[str]:
        """Lanes by number."""
        ...

    @property
    def words(self) -> Interned[str]:
        """Texts, such as workers' ids, by number."""
        ...

    @property
    def watch(self) -> FingerprintWatch:
        """Detects a replaced or restored store."""
        ...

    @property
    def changed(self) -> bool:
        """Whether the store was replaced, or restored to an older state."""
        ...

    @property
    def has_tokens(self) -> bool:
        """Whether the schema is new enough to have tokens."""
        ...

    def number(self, key: int) -> int:
        """Return one of the store's own numbers; 0 if it was never written."""
        ...

    def put(self, key: int, n: int) -> None:
        """Set one of the store's own numbers."""
        ...

    def clock_ahead_ms(self) -> int:
        """Return how far the store's time is ahead of its clock."""
        ...

    def select(self, select: Select, *bound: Any) -> Rows:  # noqa: ANN401  (depends on the statement)
        """Return the rows of a query, including what this step wrote."""
        ...

    def write(self, write: Write, *bound: Any) -> None:  # noqa: ANN401  (depends on the statement)
        """Write a change, now or at the end of the step."""
        ...

    def text_list(self, values: Iterable[str], /) -> object:
        """Return texts as one parameter."""
        ...

    def number_list(self, values: Iterable[int], /) -> object:
        """Return whole numbers as one parameter."""
        ...


SessionOf = TypeVar("SessionOf", bound=SqlSession)


class SqlTable(Generic[SessionOf]):
    """A table as the steps of one connection see it."""

    def __init__(self, session: SessionOf) -> None:
        self._session = session
