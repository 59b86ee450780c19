"""The indexes over jobs; a row's index entries depend on that row alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from sortedcontainers import SortedDict, SortedList

from headway.core.state import FINAL, HELD, QUEUED, State
from headway.stores.ledger.rows import JobRow

Filing = tuple[str, Hashable, Any]
"""An index entry: (index, bucket, key)."""


def filings(row: JobRow) -> list[Filing]:
    """Return all index entries of a row."""
    found: list[Filing] = [("all", 0, row.seq)]
    if row.state in QUEUED:
        found += _queued(row)
    elif row.state in HELD:
        found += _held(row)
    if row.state in FINAL:
        if row.purge_at is not None:
            found.append(("purge", 0, (row.purge_at, row.seq)))
    elif row.entry is not None:
        found.append(("entry", row.entry, (row.fired_at or 0, row.seq)))
    if row.subject is not None:
        found.append(("subject", (row.tenant, row.subject), row.seq))
    return found


def _queued(row: JobRow) -> list[Filing]:
    found: list[Filing] = []
    if row.state is State.WAITING:
        found.append(("waiting", row.flow, row.order))
        found.append(("lane waiting", row.lane, (row.flow, row.order)))
        if row.ticket is not None:
            found.append(("ticket", (row.ticket, row.flow), row.order))
    elif row.state is State.SCHEDULED:
        found.append(("scheduled", row.lane, (row.due_at, row.seq)))
    else:
        found.append(("parked at", row.parked_at, row.seq))
        if row.unfit:
            found.append(("unfit", row.parked_at, (row.ticket_amount, row.seq)))
        else:
            found.append(("parked", (row.parked_at, row.flow), row.order))
            found.append(("parked flows", row.parked_at, (row.flow, row.seq)))
    if row.expires_at is not None and row.run == 0:
        found.append(("expiry", 0, (row.expires_at, row.seq)))
    return found


def _held(row: JobRow) -> list[Filing]:
    found: list[Filing] = [("held", 0, row.id)]
    if row.worker is not None:
        found.append(("worker", row.worker, (row.order, row.id)))
    if row.state is State.AWAITING:
        found.append(("awaiting", 0, row.seq))
        if row.deadline_at is not None:
            found.append(("deadline", 0, (row.deadline_at, row.seq)))
    return found


class JobIndex:
    """Sorted keys by index and bucket."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, Hashable], SortedList[Any]] = {}
        # Names of buckets, for scans in order of name.
        self.lanes_scheduled: SortedDict[str, None] = SortedDict()
        self.gates_parked: SortedDict[str, None] = SortedDict()

    def bucket(self, index: str, bucket: Hashable = 0) -> SortedList[Any]:
        """Return the keys of a bucket, sorted; read-only."""
        return self._buckets.get((index, bucket), _EMPTY)

    def add(self, filing: Filing) -> None:
        """Add an index entry."""
        index, bucket, key = filing
        place = (index, bucket)
        keys = self._buckets.get(place)
        if keys is None:
            keys = self._buckets[place] = SortedList()
            self._name(index, bucket, present=True)
        keys.add(key)

    def discard(self, filing: Filing) -> None:
        """Remove an index entry."""
        index, bucket, key = filing
        place = (index, bucket)
        keys = self._buckets[place]
        keys.remove(key)
        if not keys:
            del self._buckets[place]
            self._name(index, bucket, present=False)

    def _name(self, index: str, bucket: Hashable, *, present: bool) -> None:
        named = {"scheduled": self.lanes_scheduled, "parked at": self.gates_parked}.get(index)
        if named is None or not isinstance(bucket, str):
            return
        if present:
            named[bucket] = None
        else:
            named.pop(bucket, None)

    def groups(self, index: str, bucket: Hashable, after: int, limit: int) -> Iterator[int]:
        """Yield the distinct first parts of a bucket's keys above `after`, at most `limit`."""
        keys = self.bucket(index, bucket)
        for _ in range(limit):
            place = keys.bisect_left((after + 1,))
            if place >= len(keys):
                return
            after = keys[place][0]
            yield after


_EMPTY: SortedList[Any] = SortedList()
