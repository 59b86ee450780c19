"""Modes of a step, queries about many things at once, and namespaces in statements."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import Enum, auto
from typing import Any, NamedTuple

from headway.stores.sql.statement import Rows, Select


class Mode(Enum):
    """How far a step excludes other steps."""

    EXCLUSIVE = auto()
    """No other step decides at the same time."""
    SHARED = auto()
    """Runs beside other shared steps, but not beside an exclusive one."""
    BEAT = auto()
    """Writes one worker's lease, beside exclusive steps."""
    READ = auto()
    """Reads one snapshot."""
    INSERT = auto()
    """Only adds, beside all other steps."""
    PEEK = auto()
    """Reads in one trip; it is aborted if it has to read more or write."""
    READ_OR_ABORT = auto()
    """Reads one snapshot, in as many trips as it needs; it is aborted if it has to write."""
    WHOLE = auto()
    """Runs beside other shared steps, in one trip; its assumptions are checked as it writes."""
    BLIND = auto()
    """Only adds, without reading; its assumptions are checked as it writes."""
    CALLER = auto()
    """Only adds, within a transaction of the caller."""

    # In C, because Enum's own __hash__ is Python code, and a step calls it many times.
    __hash__ = object.__hash__


class Terms(NamedTuple):
    """How steps of a mode start and end.

    Attributes:
        begin: statement that starts the step; empty for one trip without BEGIN.
        lock: statement that takes the namespace's lock; empty for none.
        end: statement that commits the step, sent with its writes; empty if it needs none.
        checked: whether the store's fingerprint must follow the known one.
        marked: whether it uses the low-water marks, which are dropped if they are outdated.
        beside: whether it writes beside exclusive steps, and so raises the high-water mark itself.
    """

    begin: str = ""
    lock: str = ""
    end: str = ""
    checked: bool = False
    marked: bool = False
    beside: bool = False


# Explicit, whatever the database's default: a step must see what was committed while it waited.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_EXCLUSIVE = "SELECT pg_advisory_xact_lock($1)"
_SHARED = "SELECT pg_advisory_xact_lock_shared($1)"
_SAVEPOINT = "SAVEPOINT headway_send"
TERMS: dict[Mode, Terms] = {
    Mode.EXCLUSIVE: Terms(_BEGIN, _EXCLUSIVE, "COMMIT", checked=True, marked=True),
    Mode.SHARED: Terms(_BEGIN, _SHARED, "COMMIT", checked=True),
    Mode.BEAT: Terms(_BEGIN, end="COMMIT", checked=True, beside=True),
    Mode.READ: Terms(_SNAPSHOT, end="COMMIT"),
    Mode.INSERT: Terms(_BEGIN, end="COMMIT", checked=True, beside=True),
    Mode.PEEK: Terms(checked=True, marked=True),
    Mode.READ_OR_ABORT: Terms(_SNAPSHOT, end="COMMIT", checked=True, marked=True),
    Mode.WHOLE: Terms(lock=_SHARED, checked=True, marked=True),
    Mode.BLIND: Terms(beside=True),
    Mode.CALLER: Terms(_SAVEPOINT, end=f"RELEASE {_SAVEPOINT}"),
}
UNDO_SAVEPOINT = (f"ROLLBACK TO {_SAVEPOINT}", f"RELEASE {_SAVEPOINT}")
"""Roll back a step within a caller's transaction."""


class StepKind(NamedTuple):
    """A kind of steps with similar reads: the reads of one are prefetched by the next.

    Attributes:
        n: maximum number of jobs that this step may start; 0 if it starts none.
        like: kinds whose reads are prefetched until this kind's own are known.
    """

    name: Hashable
    n: int = 0
    like: tuple[Hashable, ...] = ()


class NeedsMore(Exception):
    """The step cannot be completed in its mode; nothing was written."""


class KeyHeld(Exception):
    """Another open transaction has inserted a key or id of the step; nothing was written."""


class Repeat(Exception):
    """The step conflicted with another and must be repeated; nothing was written."""


class Each(NamedTuple):
    """A query about many things at once, whose rows are cached by thing for the step.

    Attributes:
        text: as in `Select`; bound only to the things.
        pack: builds its only parameter from the things.
        place: index of the column that contains the thing.
    """

    text: str
    of: frozenset[str]
    pack: Callable[[Iterable[Any]], Any]
    place: int = 0


class Read(NamedTuple):
    """A query that is sent with others, and a callback for its rows."""

    text: str
    bound: tuple[Any, ...]
    take: Callable[[Rows], None]


Thing = Hashable
"""The key of an `Each` query: a name, an id, a hash or a number."""
BoundSelect = tuple[Select, tuple[Any, ...]]
"""A query and its parameters."""


def resolve(text: str, namespace: str) -> str:
    """Return a statement with `@` replaced by the schema, and `@now` by the step's time."""
    schema = '"' + namespace.replace('"', '""') + '".'
    now = "current_setting('headway.now')::bigint"
    return text.replace("@now", now).replace("@", schema)
