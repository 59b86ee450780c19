"""Hours as absolute intervals, computed at least two weeks ahead."""

from __future__ import annotations

from headway.core.gates.hours import intervals
from headway.core.gates.spec import GateUse
from headway.core.job import DAY_MS
from headway.stores.ledger.gatebook import GateBook

HORIZON_MS = 16 * DAY_MS
"""How far ahead intervals are computed."""
EXTEND_BELOW_MS = 15 * DAY_MS
"""A sweep extends hours that are computed for less than this."""


def ensure_hours(book: GateBook, use: GateUse) -> None:
    """Create the row of an Hours gate that is used for the first time."""
    row = book.find(use.name)
    if row is None or row.horizon_at is None:
        extend(book, use.name, use.template, use.zone or "UTC")


def extend(book: GateBook, name: str, template: str, zone: str) -> None:
    """Compute the open intervals of an Hours gate from now to its horizon."""
    spec = book.spec(template)
    if spec is None or spec.hours is None:
        return
    now = book.ledger.now
    row = book.change(name, template)
    row.zone = zone
    row.opens = intervals(spec.hours, zone, now, now + HORIZON_MS)
    row.horizon_at = now + HORIZON_MS
    book.forget_view(name)


def extend_short(book: GateBook, limit: int) -> int:
    """Extend hours whose horizon is near.

    Returns:
        How many were extended.
    """
    rows = book.ledger.gates.short_horizons(book.ledger.now + EXTEND_BELOW_MS, limit)
    for row in rows:
        extend(book, row.name, row.template, row.zone or "UTC")
    return len(rows)
