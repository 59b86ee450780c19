"""A snapshot of an overview, and what is different in a later one."""

from __future__ import annotations

from collections.abc import Mapping

from headway.runtime.records import Record, record
from headway.server.overview import Overview

Rows = Mapping[str, Record]
Snapshot = Mapping[str, Rows]
"""By part (`stats`, `lanes`, `gates`, `workers`) and name the record of each row."""

ALL = "all"
"""The name of the one row of the store's stats."""
_PASSING = ("now", "clock_ahead_ms")
"""Fields that differ in each snapshot and so say nothing; the time stands beside the parts."""


def snapshot(overview: Overview) -> Snapshot:
    """What is compared and sent, of an overview."""
    stats = record(overview.stats)
    for name in _PASSING:
        del stats[name]
    return {
        "stats": {ALL: stats},
        "lanes": {lane.name: record(lane) for lane in overview.lanes},
        "gates": {gate.name: record(gate) for gate in overview.gates},
        "workers": {worker.id: record(worker) for worker in overview.workers},
    }


def difference(before: Snapshot, after: Snapshot) -> dict[str, dict[str, Record | None]]:
    """The rows that are not as they were.

    Returns:
        By part and name the new record, or None for a row that is gone; no part without rows.
    """
    found: dict[str, dict[str, Record | None]] = {}
    for part, rows in after.items():
        old = before[part]
        changed: dict[str, Record | None] = {
            name: row for name, row in rows.items() if old.get(name) != row
        }
        changed |= dict.fromkeys(old.keys() - rows.keys())
        if changed:
            found[part] = changed
    return found
