"""What a step is likely to ask, laid ahead so that it goes in the trip of the step's begin."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from headway.stores.ledger.gatenames import is_implicit
from headway.stores.postgres.arrays import Texts
from headway.stores.postgres.mode import Mode, NeedsMore
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Asked, Read, of
from headway.stores.postgres.tables.gates import LOAD, QUIET, take_gates
from headway.stores.postgres.tables.jobs.starting import (
    FLOWS_WAITING,
    HEADS,
    flows_bound,
    heads_bound,
    take_heads,
)

_PLACE = re.compile(r"\$(\d+)")
_GATES = Ask(LOAD, of("gate"))
_QUIET = Ask(QUIET, of("parked"))
_FLOWS = Ask(FLOWS_WAITING, of("waiting"))
_HEADS = Ask(HEADS, of("waiting"))
MOST_GATES = 64
"""Names of gates that are looked at ahead; more are seldom the same again."""
MOST_FLOWS = 32
"""Flows whose heads are read ahead."""


def begin_as_usual(
    session: Session,
    mode: Mode,
    kind: object,
    first: Sequence[Asked] = (),
    reads: Callable[[], Sequence[Read]] = list,
) -> list[list[tuple[object, ...]]]:
    """Begin a step, and ask in the same trip what the last of its kind asked.

    Args:
        session: no step is under way.
        kind: of the step; None for one of which nothing is known or learned.
        first: what it will ask for certain.
        reads: makes the questions about many things that it will ask for certain.

    Returns:
        The answers to `first`.

    Raises:
        NeedsMore: it is only a look, and there is something where there was nothing.
    """
    habit = session.shared.habit(kind) if kind is not None else None
    ahead = list(first)
    if habit is None:
        return session.begin(mode, ahead, kind=kind, reads=reads)[: len(first)]
    seen = {ask for ask, _ in first}
    likely = [one for one in habit.asks if one[0] not in seen]
    empty = [one for one in likely if one in habit.empty] if mode is Mode.PEEK else []
    ahead += [one for one in likely if one not in empty]
    if empty:
        ahead.append(whether_any(empty))
    before = len(ahead)
    gates = habit.gates[:MOST_GATES]
    keyed = Texts(name for name in gates if not is_implicit(name))
    heads = dict(list(habit.heads.items())[:MOST_FLOWS])
    ahead += _of_gates(gates, keyed)
    place = len(ahead)
    if heads:
        ahead.append((_HEADS, heads_bound(session, heads)))
    flows = len(ahead)
    ahead += [(_FLOWS, flows_bound(session, *one)) for one in habit.lanes]
    told = session.begin(mode, ahead, kind=kind, reads=reads)
    if empty:
        if any(told[before - 1][0]):
            raise NeedsMore
        session.know_empty(empty)
    if gates:
        quiet = place - bool(keyed)
        take_gates(session, gates, told[quiet - 1], told[quiet] if keyed else [])
    if heads:
        take_heads(session, heads, told[place])
    for one, rows in zip(habit.lanes, told[flows:], strict=True):
        session.lanes_asked[one] = rows
    return told[: len(first)]


def _of_gates(gates: Sequence[str], keyed: Texts) -> list[Asked]:
    asked: list[Asked] = []
    if gates:
        asked.append((_GATES, (Texts(gates),)))
    if keyed:
        asked.append((_QUIET, (keyed,)))
    return asked


def whether_any(asked: Sequence[Asked]) -> Asked:
    """One question in the place of many: whether there is an answer to each.

    Returns:
        The question, which is answered by one row of as many truth values.
    """
    text = _together(tuple((ask.text, len(bound)) for ask, bound in asked))
    return Ask(text, of()), tuple(one for _, bound in asked for one in bound)


@lru_cache(maxsize=256)
def _together(texts: tuple[tuple[str, int], ...]) -> str:
    parts: list[str] = []
    taken = 0
    for text, size in texts:
        numbered = _PLACE.sub(lambda place, taken=taken: f"${int(place[1]) + taken}", text)
        parts.append(f"EXISTS ({numbered})")
        taken += size
    return f"SELECT {', '.join(parts)}"
