"""The columns of a worker."""

from __future__ import annotations

from typing import Any

from headway.stores.ledger.packing import decode_names, encode
from headway.stores.ledger.rows import WorkerRow

WORKER = "id, name, lanes, seen_at, lease_until, request, lapsed"
"""The columns of `read_worker` and `worker_values`."""


def read_worker(kept: tuple[Any, ...]) -> WorkerRow:
    """Return the worker of a row selected by `WORKER`."""
    worker, name, lanes, seen_at, lease_until, request, lapsed = kept
    return WorkerRow(
        id=worker,
        name=name,
        lanes=decode_names(lanes),
        seen_at=seen_at,
        lease_until=lease_until,
        request=request,
        lapsed=bool(lapsed),
    )


def worker_values(row: WorkerRow) -> tuple[str, str, bytes, int, int, int, bool]:
    """Return the values of a worker, in the order of `WORKER`."""
    return (
        row.id,
        row.name,
        encode(row.lanes),
        row.seen_at,
        row.lease_until,
        row.request,
        row.lapsed,
    )
