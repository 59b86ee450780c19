"""Write, load and remove jobs and their ended runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.stores.ledger.rows import JobRow, RunRow
from headway.stores.memory.jobs.base import JobsBase


class JobKeeping(JobsBase):
    """The part of the job table with whole rows."""

    def insert(self, rows: Sequence[JobRow]) -> None:
        for row in rows:
            row.seq = self._next_seq
            self._next_seq += 1
            self._seqs[row.id] = row.seq
            self._put(row.clone())

    def known(self, ids: Sequence[str]) -> set[str]:
        return {one for one in ids if one in self._seqs}

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        seqs = self._seqs
        return {one: self._rows[seqs[one]].clone() for one in ids if one in seqs}

    def save(self, rows: Iterable[JobRow]) -> None:
        for row in rows:
            self._put(row.clone())

    def remove(self, ids: Sequence[str]) -> None:
        for one in ids:
            row = self._rows.pop(self._seqs.pop(one))
            self._file(row, None)
            self._journal.note(lambda row=row: self._bring_back(row))
            self._journal.drop(self._runs, one)
            self._signals.forget_job(one)
            if row.key is not None:
                self._keys.forget(row.tenant, row.key, one)

    def _bring_back(self, row: JobRow) -> None:
        self._rows[row.seq] = row
        self._seqs[row.id] = row.seq
        self._file(None, row)

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        seqs = sorted(seq for seq in self._rows if seq > after)[:limit]
        return [self._rows[seq].clone() for seq in seqs]

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        for row in rows:
            self._journal.put(self._runs, row.job, [*self._runs.get(row.job, ()), row])

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        return {one: self._runs[one] for one in ids if one in self._runs}
