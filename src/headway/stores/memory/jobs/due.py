"""Jobs by time: due, expired, past a deadline, or past their retention."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from headway.core.state import State
from headway.stores.ledger.rows import DueRow, JobRow
from headway.stores.memory.jobs.base import JobsBase


class JobTiming(JobsBase):
    """The part of the job table that is ordered by moments."""

    def due(self, lane: str, limit: int) -> list[DueRow]:
        found: list[DueRow] = []
        for due_at, seq in islice(self._index.bucket("scheduled", lane), limit):
            if due_at > self._time.now:
                break
            row = self._rows[seq]
            found.append(DueRow(seq, row.id, row.entry, row.fired_at))
        return found

    def promote(self, seqs: Sequence[int]) -> set[int]:
        flows: set[int] = set()
        for seq in seqs:
            row = self._rows[seq].clone()
            row.state = State.WAITING
            flows.add(row.flow)
            self._put(row)
        return flows

    def next_due(self, lane: str) -> int | None:
        bucket = self._index.bucket("scheduled", lane)
        return bucket[0][0] if bucket else None

    def lanes_due(self, limit: int) -> list[str]:
        lanes = (lane for lane in self._index.lanes_scheduled if self._is_due(lane))
        return list(islice(lanes, limit))

    def _is_due(self, lane: str) -> bool:
        due_at = self.next_due(lane)
        return due_at is not None and due_at <= self._time.now

    def _past(self, index: str, limit: int) -> list[str]:
        found: list[str] = []
        for at, seq in islice(self._index.bucket(index), limit):
            if at > self._time.now:
                break
            found.append(self._rows[seq].id)
        return found

    def _first(self, index: str) -> int | None:
        bucket = self._index.bucket(index)
        return bucket[0][0] if bucket else None

    def expired(self, limit: int) -> list[str]:
        return self._past("expiry", limit)

    def next_expiry(self) -> int | None:
        return self._first("expiry")

    def deadlines(self, limit: int) -> list[str]:
        return self._past("deadline", limit)

    def next_deadline(self) -> int | None:
        return self._first("deadline")

    def purgeable(self, limit: int) -> list[str]:
        return self._past("purge", limit)

    def of_entry(self, entry: str) -> list[JobRow]:
        return [self._rows[seq].clone() for _, seq in self._index.bucket("entry", entry)]
