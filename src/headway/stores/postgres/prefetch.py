"""Prefetch: a step's likely reads, sent in the trip that starts it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from headway.stores.postgres.ledger import parked_at, rows_of_gates
from headway.stores.postgres.session import Session
from headway.stores.postgres.shared import Prefetch
from headway.stores.postgres.statement import BoundSelect, Mode, NeedsMore, Read, StepKind
from headway.stores.postgres.tables.job_heads import flows_bound, heads_read, take_heads
from headway.stores.postgres.tables.job_statements import FIRST_PARKED, FLOWS_WAITING, HEADS
from headway.stores.sql.statement import Select, of

_PLACE = re.compile(r"\$(\d+)")
_FLOWS = Select(FLOWS_WAITING, of("waiting"))
_HEADS = Select(HEADS, of("waiting"))


def begin_with_prefetch(
    session: Session,
    mode: Mode,
    kind: StepKind | None,
    first: Sequence[BoundSelect] = (),
    reads: Callable[[], Sequence[Read]] = list,
) -> list[list[tuple[object, ...]]]:
    """Start a step, and repeat the reads of the last step of its kind in the same trip.

    Args:
        session: must have no step running.
        kind: kind of the step; None to remember nothing.
        first: queries that it certainly needs.
        reads: builds further queries that it certainly needs.

    Returns:
        The rows of each query of `first`.

    Raises:
        NeedsMore: the step is a PEEK, and a query that found nothing before now finds rows.
    """
    last = session.shared.prefetch_of(kind) if kind is not None else None
    ahead = list(first)
    if kind is None or last is None:
        return session.begin(mode, ahead, kind=kind, reads=reads)[: len(first)]
    seen = {select for select, _ in first}
    likely = [one for one in last.selects if one[0] not in seen]
    empty = [one for one in likely if one in last.empty] if mode is Mode.PEEK else []
    ahead += [one for one in likely if one not in empty]
    empty_at = len(ahead)
    if empty:
        ahead.append(whether_any(empty))
    marks = session.shared.marks
    lowered = marks.lowered
    heads = heads_read(session, last.heads_for(kind.n))
    flows = [(_FLOWS, flows_bound(session, *one)) for one in last.lanes]
    # The last column of their ranges is empty without marks.
    marked = heads.marked or any(bound[-1] for _, bound in flows)
    heads_at = len(ahead)
    if heads.wanted:
        ahead.append((_HEADS, heads.bound))
    flows_at = len(ahead)
    ahead += flows

    def all_reads() -> list[Read]:
        return [*reads(), *_of_names(session, last)]

    found = session.begin(mode, ahead, kind=kind, reads=all_reads)
    if empty:
        if any(found[empty_at][0]):
            raise NeedsMore
        session.cache.answers.update((one, []) for one in empty)
    # Otherwise another process may have put jobs before the marks from which these were read.
    if marks.lowered == lowered or not marked:
        if heads.wanted:
            take_heads(session, heads, found[heads_at])
        session.cache.lanes_asked.update(zip(last.lanes, found[flows_at:], strict=True))
    return found[: len(first)]


def _of_names(session: Session, last: Prefetch) -> list[Read]:
    reads = [*rows_of_gates(session, last.gates.likely), *parked_at(session, last.fed.likely)]
    queues = session.cache.read_of(FIRST_PARKED, last.queues.likely)
    if queues is not None:
        reads.append(queues)
    return reads


def whether_any(asked: Sequence[BoundSelect]) -> BoundSelect:
    """Return one query that tests whether each of several finds a row, as one row of booleans."""
    text = _together(tuple((select.text, len(bound)) for select, bound in asked))
    return Select(text, of()), tuple(one for _, bound in asked for one in bound)


@lru_cache(maxsize=256)
def _together(texts: tuple[tuple[str, int], ...]) -> str:
    parts: list[str] = []
    taken = 0
    for text, size in texts:
        numbered = _PLACE.sub(lambda place, taken=taken: f"${int(place[1]) + taken}", text)
        parts.append(f"EXISTS ({numbered})")
        taken += size
    return f"SELECT {', '.join(parts)}"
