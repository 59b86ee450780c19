"""Modes of a step, statements about many things at once, and what the server reads of a text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import Enum, auto
from typing import Any, NamedTuple

from headway.stores.sql.statement import Rows, Select


class Mode(Enum):
    """How much of the store a step has for itself."""

    EXCLUSIVE = auto()
    """Everything: no other step decides meanwhile."""
    SHARED = auto()
    """Beside other shared steps, but not beside an exclusive one."""
    BEAT = auto()
    """One worker's lease, beside exclusive steps."""
    READ = auto()
    """One snapshot."""
    INSERT = auto()
    """Nothing: it only adds."""
    PEEK = auto()
    """One look, in one trip; it ends if more must be known or anything written."""
    LOOK = auto()
    """One snapshot, in as many trips as it needs; it ends if anything must be written."""
    WHOLE = auto()
    """Beside other shared steps, in one trip: its assumptions are checked as it writes."""
    BLIND = auto()
    """It only adds, and reads nothing: its assumptions are checked as it writes."""
    GUEST = auto()
    """It only adds, within a transaction of the caller."""

    # In C: an enum's own hash is a call of Python, and a step asks for it many times.
    __hash__ = object.__hash__


class Terms(NamedTuple):
    """How a mode's step begins and ends.

    Attributes:
        begin: the statement that begins it; empty for one trip without BEGIN.
        lock: the statement that takes the namespace's lock; empty for none.
        end: the statement that commits it, sent with its writes; empty if it needs none.
        checked: whether the store's fingerprint must follow the known one.
        marked: whether it uses the low-water marks, which are dropped if they are outdated.
        beside: whether it writes beside exclusive steps, which raise the high-water mark.
    """

    begin: str = ""
    lock: str = ""
    end: str = ""
    checked: bool = False
    marked: bool = False
    beside: bool = False


# Whatever the database's default is: a step must see what was committed while it waited.
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
    Mode.INSERT: Terms(_BEGIN, end="COMMIT", beside=True),
    Mode.PEEK: Terms(checked=True, marked=True),
    Mode.LOOK: Terms(_SNAPSHOT, end="COMMIT", checked=True, marked=True),
    Mode.WHOLE: Terms(lock=_SHARED, checked=True, marked=True),
    Mode.BLIND: Terms(beside=True),
    Mode.GUEST: Terms(_SAVEPOINT, end=f"RELEASE {_SAVEPOINT}"),
}
UNDO_GUEST = (f"ROLLBACK TO {_SAVEPOINT}", f"RELEASE {_SAVEPOINT}")
"""Roll back a step within a caller's transaction."""


class StepKind(NamedTuple):
    """Steps that read alike: what one has read is prefetched by the next.

    Attributes:
        n: how many jobs this step may start; 0 if it starts none.
        like: names of kinds whose reads are prefetched while nothing is known of this one.
    """

    name: Hashable
    n: int = 0
    like: tuple[Hashable, ...] = ()


class NeedsMore(Exception):
    """The step cannot be done in its mode; nothing was written."""


class KeyHeld(Exception):
    """Another open transaction has sent a key or id of the step; nothing was written."""


class Repeat(Exception):
    """Another step was faster; nothing was written, and the step must be repeated."""


class Each(NamedTuple):
    """A query about many things at once, whose rows are cached by thing for the step.

    Attributes:
        text: as of `Select`; bound to the things alone.
        pack: makes the one parameter of the things.
        place: the column with the thing that a row is about.
    """

    text: str
    of: frozenset[str]
    pack: Callable[[Iterable[Any]], Any]
    place: int = 0


class Read(NamedTuple):
    """A query that is sent with others, and what is done with its rows."""

    text: str
    bound: tuple[Any, ...]
    take: Callable[[Rows], None]


Thing = Hashable
"""What `Each` is queried by: a name, an id, a hash or a number."""
BoundSelect = tuple[Select, tuple[Any, ...]]
"""A query and its parameters."""


def resolve(text: str, namespace: str) -> str:
    """Return a statement as the server reads it, `@` replaced by the namespace's schema."""
    schema = '"' + namespace.replace('"', '""') + '".'
    now = "current_setting('headway.now')::bigint"
    return text.replace("@now", now).replace("@", schema)
