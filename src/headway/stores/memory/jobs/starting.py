"""Starting and finishing jobs: the heads of flows, and what a worker holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from headway.core.flow import Head
from headway.core.state import State
from headway.stores.ledger.rows import Finished, GatedStart, HeldRow, JobRow
from headway.stores.memory.jobs.keeping import JobKeeping


class JobStarting(JobKeeping):
    """The part of the job table that claims and settlements use."""

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        return list(self._index.groups("lane waiting", lane, after, limit))

    def heads(self, flow: int, limit: int) -> list[Head]:
        orders = islice(self._index.bucket("waiting", flow), limit)
        return [self._head(self._rows[order.seq]) for order in orders]

    def start_plain(self, seqs: Sequence[int], worker: str, request: int) -> None:
        for seq in seqs:
            row = self._rows[seq].clone()
            self._begin(row, worker, request, 0)
            self._put(row)

    def _begin(self, row: JobRow, worker: str, request: int, blocked_ms: int) -> None:
        row.state = State.RUNNING
        row.run += 1
        row.attempt += 1
        row.worker, row.request = worker, request
        row.claimed_at = self._time.now
        row.blocked_ms += blocked_ms
        row.ticket, row.ticket_amount = None, 0

    def start_gated(self, starts: Sequence[GatedStart], worker: str, request: int) -> None:
        for start in starts:
            row = self._rows[start.seq].clone()
            self._begin(row, worker, request, start.blocked_ms)
            row.members = dict(start.members)
            row.gated = bool(start.members)
            row.candidate = start.candidate
            row.cascade = start.cascade or row.cascade
            self._put(row)

    def finish_plain(self, worker: str, runs: Sequence[tuple[str, int]], purge_at: int) -> Finished:
        lanes: list[str | None] = []
        gated = False
        for one, run in runs:
            seq = self._seqs.get(one)
            row = self._rows[seq] if seq is not None else None
            if (
                row is None
                or row.state is not State.RUNNING
                or row.care
                or row.run != run
                or row.worker != worker
            ):
                lanes.append(None)
                continue
            row = row.clone()
            row.state, row.outcome = State.SUCCEEDED, "succeeded"
            row.worker, row.last_worker = None, worker
            row.finished_at, row.purge_at = self._time.now, purge_at
            self._put(row)
            lanes.append(row.lane)
            gated = gated or row.gated
        return Finished(lanes, gated)

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        held = islice(self._index.bucket("worker", worker), limit)
        rows = (self._rows[order.seq] for order, _ in held)
        return [
            HeldRow(row.id, row.run, row.request, row.state, row.cancel_requested) for row in rows
        ]

    def held_counts(self, workers: Sequence[str]) -> dict[str, int]:
        return {one: len(self._index.bucket("worker", one)) for one in workers}

    def taken_by(self, worker: str, request: int) -> list[JobRow]:
        rows = (self._rows[order.seq] for order, _ in self._index.bucket("worker", worker))
        return [
            row.clone() for row in rows if row.request == request and row.state is State.RUNNING
        ]

    def held(self, after: str, limit: int) -> list[JobRow]:
        bucket = self._index.bucket("held")
        ids = islice(bucket.irange(minimum=after, inclusive=(False, True)), limit)
        return [self._rows[self._seqs[one]].clone() for one in ids]
