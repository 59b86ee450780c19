"""Statements, and what each looks at or changes: so that an answer read ahead is never stale."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from headway.stores.postgres.mode import Mode

Row = tuple[Any, ...]
"""Values of a row, in the order of its columns."""
Rows = list[Row]


class Ask(NamedTuple):
    """A question.

    Attributes:
        text: in which `@` stands before each name of the namespace, and `@now` for the step's time.
        of: what it looks at, by the words that `Tell` uses.
        ahead: whether a step like the last one may ask it before it is asked.
    """

    text: str
    of: frozenset[str]
    ahead: bool = False


class Tell(NamedTuple):
    """A change.

    Attributes:
        changes: what no earlier answer holds for any more.
        beside: a mode in which it may be written without the turn.
    """

    text: str
    changes: frozenset[str]
    beside: Mode | None = None


class Each(NamedTuple):
    """A question about many things at once, whose answers are kept by thing for the step.

    Attributes:
        text: as of a question; bound to the things alone.
        pack: makes of the things what the text is bound to.
        place: the column that says which of the things a row is about.
    """

    text: str
    of: frozenset[str]
    pack: Callable[[Iterable[Any]], Any]
    place: int = 0


class Read(NamedTuple):
    """A question that is sent with others.

    Attributes:
        bound: what it is bound to.
    """

    text: str
    bound: tuple[Any, ...]
    take: Callable[[Rows], None]


Thing = Hashable
"""What a question about many things is asked by: a name, an id, a hash or a number."""
Asked = tuple[Ask, tuple[Any, ...]]
"""A question and what it is bound to."""


def of(*words: str) -> frozenset[str]:
    """What is looked at or changed."""
    return frozenset(words)


ANY_JOB = frozenset({"waiting", "scheduled", "parked", "held", "expiry", "deadline", "job"})
"""Whatever is known of jobs."""


def resolve(text: str, namespace: str) -> str:
    """The statement as the server reads it.

    Args:
        text: with `@` before each name of the namespace.

    Returns:
        The text.
    """
    schema = '"' + namespace.replace('"', '""') + '".'
    now = "current_setting('headway.now')::bigint"
    return text.replace("@now", now).replace("@", schema)


Batch = Sequence[tuple[str, Sequence[Any]]]
"""Texts and what they are bound to, sent in one go."""
