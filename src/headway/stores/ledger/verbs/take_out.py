"""Take out: the whole content of a store is read, parcel by parcel."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from headway.contract.moving import Parcel
from headway.core.errors import InvalidValue
from headway.core.job import MAX_BATCH
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.packing import encode_entry
from headway.stores.ledger.parcels import (
    PARTS,
    CarriedEntry,
    CarriedGate,
    CarriedJob,
    CarriedLane,
    Known,
    Total,
    encode,
)
from headway.stores.ledger.rows import JobRow

Page = tuple[Sequence[Any], Any]
"""Rows, and what the next page begins after; None where there is no next."""
ALL_STARTS = 2**31 - 1


def take_out(ledger: Ledger, cursor: str | None) -> Parcel:
    """See `Movable.take_out`."""
    names = list(PARTS)
    part, after = read_cursor(cursor)
    rows, following = _TAKE[part](ledger, after)
    if following is None:
        place = names.index(part) + 1
        following_cursor = json.dumps([names[place], None]) if place < len(names) else None
    else:
        following_cursor = json.dumps([part, following])
    return Parcel(part=part, rows=encode(rows), size=len(rows), cursor=following_cursor)


def read_cursor(cursor: str | None) -> tuple[str, Any]:
    """The part that a parcel is of, and the place in it behind which it begins; None for its first.

    Raises:
        InvalidValue: it is no cursor.
    """
    if cursor is None:
        return next(iter(PARTS)), None
    try:
        part, after = json.loads(cursor)
        _TAKE[part]
    except (ValueError, KeyError, TypeError):
        message = f"{cursor!r:.80} is no cursor"
        raise InvalidValue(message, hint="give the one of the parcel before") from None
    return part, after


def _whole(rows: Sequence[Any]) -> Page:
    return rows, None


def _more(rows: Sequence[Any], limit: int, last: Callable[[Any], Any]) -> Page:
    return rows, last(rows[-1]) if len(rows) == limit else None


def _templates(ledger: Ledger, _after: Any) -> Page:  # noqa: ANN401  (a cursor is whatever the part makes it)
    return _whole(list(ledger.gates.templates().values()))


def _gates(ledger: Ledger, after: Any) -> Page:  # noqa: ANN401  (as above)
    rows = ledger.gates.page(after or "", MAX_BATCH)
    carried = [
        CarriedGate(row=row, starts=ledger.starts.oldest(row.name, 0, ALL_STARTS)) for row in rows
    ]
    return _more(carried, MAX_BATCH, lambda one: one.row.name)


def _lanes(ledger: Ledger, _after: Any) -> Page:  # noqa: ANN401  (as above)
    rows = ledger.lanes.load(ledger.lanes.names()).values()
    return _whole(
        [CarriedLane(row=row, starts=ledger.lanes.all_tenant_starts(row.name)) for row in rows]
    )


def _entries(ledger: Ledger, _after: Any) -> Page:  # noqa: ANN401  (as above)
    return _whole(
        [
            CarriedEntry(
                name=row.name,
                spec=encode_entry(row.spec),
                revision=row.revision,
                last_fired=row.last_fired,
                ahead_until=row.ahead_until,
                folded=row.folded,
                first_seen_at=row.first_seen_at,
            )
            for row in ledger.entries.all()
        ]
    )


def _tokens(ledger: Ledger, _after: Any) -> Page:  # noqa: ANN401  (as above)
    return _whole(sorted(ledger.tokens.all(), key=lambda row: row.spec.id))


def _jobs(ledger: Ledger, after: Any) -> Page:  # noqa: ANN401  (as above)
    rows = ledger.jobs.arrived(after or 0, MAX_BATCH)
    ids = [row.id for row in rows]
    runs = ledger.jobs.runs(ids)
    permits = ledger.permits.of_jobs(ids)
    keys = ledger.keys.load([(row.tenant, row.key) for row in rows if row.key is not None])

    def carried(row: JobRow) -> CarriedJob:
        key = keys.get((row.tenant, row.key)) if row.key is not None else None
        return CarriedJob(
            row=row,
            flow=ledger.jobs.flow(row.flow),
            policy=ledger.jobs.policy(row.policy),
            runs=runs.get(row.id, []),
            permits=[permit for permit in permits if permit.job == row.id],
            key=key if key is not None and key.job == row.id else None,
        )

    return _more([carried(row) for row in rows], MAX_BATCH, lambda one: one.row.seq)


def _known(ledger: Ledger, after: Any) -> Page:  # noqa: ANN401  (as above)
    found = ledger.signals.all_known(after or "", MAX_BATCH)
    rows = [Known(key=key, job=job, run=run) for key, job, run in found]
    return _more(rows, MAX_BATCH, lambda one: one.key)


def _events(ledger: Ledger, after: Any) -> Page:  # noqa: ANN401  (as above)
    scope, event = after or ("", "")
    rows = ledger.signals.all_heard((scope, event), MAX_BATCH)
    return _more(rows, MAX_BATCH, lambda one: (one.scope, one.event))


def _trail(ledger: Ledger, after: Any) -> Page:  # noqa: ANN401  (as above)
    return _more(ledger.trail.since(after or 0, MAX_BATCH), MAX_BATCH, lambda one: one.seq)


def _totals(ledger: Ledger, _after: Any) -> Page:  # noqa: ANN401  (as above)
    return _whole([Total(what=what, n=n) for what, n in ledger.counts.totals().items()])


_TAKE: dict[str, Callable[[Ledger, Any], Page]] = {
    "templates": _templates,
    "gates": _gates,
    "lanes": _lanes,
    "entries": _entries,
    "tokens": _tokens,
    "jobs": _jobs,
    "known": _known,
    "events": _events,
    "trail": _trail,
    "totals": _totals,
}
