"""The columns of a timetable entry."""

from __future__ import annotations

from typing import Any

from headway.stores.ledger.packing import decode_entry, encode_entry
from headway.stores.ledger.rows import EntryRow

ENTRY = "name, spec, revision, last_fired, ahead_until, folded, first_seen_at"
"""The columns of `read_entry` and `entry_values`."""


def read_entry(kept: tuple[Any, ...]) -> EntryRow:
    """Return the entry of a row selected by `ENTRY`."""
    name, spec, revision, last_fired, ahead_until, folded, first_seen_at = kept
    return EntryRow(
        name=name,
        spec=decode_entry(spec),
        revision=revision,
        last_fired=last_fired,
        ahead_until=ahead_until,
        folded=folded,
        first_seen_at=first_seen_at,
    )


def entry_values(row: EntryRow) -> tuple[str, bytes | None, int, int | None, int | None, int, int]:
    """Return the values of an entry, in the order of `ENTRY`."""
    return (
        row.name,
        encode_entry(row.spec),
        row.revision,
        row.last_fired,
        row.ahead_until,
        row.folded,
        row.first_seen_at,
    )
