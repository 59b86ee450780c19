"""Put in: a parcel that was taken out of another store is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headway.contract.moving import Parcel
from headway.core.errors import InvalidValue
from headway.core.state import State
from headway.stores.ledger.gaterows import TemplateRow
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.packing import decode_entry
from headway.stores.ledger.parcels import (
    CarriedEntry,
    CarriedGate,
    CarriedJob,
    CarriedLane,
    Known,
    Total,
    decode,
)
from headway.stores.ledger.rows import EntryRow, SignalRow, TrailRow
from headway.stores.ledger.tables.tokens import TokenRow


def put_in(ledger: Ledger, parcel: Parcel) -> None:
    """See `Movable.put_in`.

    Raises:
        InvalidValue: it is no parcel that this program knows; nothing was written.
    """
    try:
        rows = decode(parcel.part, parcel.rows)
    except (KeyError, msgspec.DecodeError) as error:
        message = f"a parcel of {parcel.part!r:.40} cannot be read: {error}"
        raise InvalidValue(message, hint="both stores must be of the same version") from None
    _PUT[parcel.part](ledger, rows)


def _templates(ledger: Ledger, rows: Sequence[TemplateRow]) -> None:
    for row in rows:
        ledger.gates.save_template(row)
    if rows:
        ledger.facts.bump_revision()


def _gates(ledger: Ledger, rows: Sequence[CarriedGate]) -> None:
    ledger.gates.save(one.row for one in rows)
    for one in rows:
        if one.starts:
            ledger.starts.put(one.row.name, dict(one.starts))


def _lanes(ledger: Ledger, rows: Sequence[CarriedLane]) -> None:
    ledger.lanes.ensure(one.row.name for one in rows)
    for one in rows:
        ledger.lanes.save(one.row)
        ledger.lanes.save_tenant_starts(one.row.name, one.starts)


def _entries(ledger: Ledger, rows: Sequence[CarriedEntry]) -> None:
    for row in rows:
        ledger.entries.save(
            EntryRow(
                name=row.name,
                spec=decode_entry(row.spec),
                revision=row.revision,
                last_fired=row.last_fired,
                ahead_until=row.ahead_until,
                folded=row.folded,
                first_seen_at=row.first_seen_at,
            )
        )


def _tokens(ledger: Ledger, rows: Sequence[TokenRow]) -> None:
    ledger.tokens.save(rows)
    if rows:
        ledger.facts.bump_revision()


def _jobs(ledger: Ledger, rows: Sequence[CarriedJob]) -> None:
    jobs = ledger.jobs
    there = jobs.known([one.row.id for one in rows])
    new = [one for one in rows if one.row.id not in there]
    for one in new:
        row = one.row
        row.flow, row.policy = jobs.flow_number(one.flow), jobs.policy_number(one.policy)
        state, row.state = row.state, State.SCHEDULED
        # A job comes into being scheduled, as always, and is then written as it was.
        jobs.insert([row])
        row.state = state
        ledger.counts.move(row.lane, None, state)
    jobs.save(one.row for one in new)
    jobs.add_runs([run for one in new for run in one.runs])
    ledger.permits.add([permit for one in new for permit in one.permits])
    ledger.keys.save(one.key for one in new if one.key is not None)


def _known(ledger: Ledger, rows: Sequence[Known]) -> None:
    for row in rows:
        ledger.signals.make_known(row.key, row.job, row.run)


def _events(ledger: Ledger, rows: Sequence[SignalRow]) -> None:
    for row in rows:
        ledger.signals.save(row)


def _trail(ledger: Ledger, rows: Sequence[TrailRow]) -> None:
    newest = ledger.trail.page(None, None, 1)
    if rows and (not newest or newest[0][1:] != rows[-1][1:]):
        ledger.trail.add(rows)


def _totals(ledger: Ledger, rows: Sequence[Total]) -> None:
    standing = ledger.counts.totals()
    for row in rows:
        ledger.counts.happened(row.what, row.n - standing.get(row.what, 0))


_PUT: dict[str, Callable[[Ledger, Any], None]] = {
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
