"""The rows and indexes that the parts of the job table share."""

from __future__ import annotations

from headway.core.flow import Head
from headway.core.job import JobPolicy
from headway.stores.ledger.rows import FlowKey, JobRow, RunRow
from headway.stores.memory.jobindex import JobIndex, filings
from headway.stores.memory.journal import Journal
from headway.stores.memory.records import MemoryKeys, MemorySignals
from headway.stores.memory.timing import StepTime


class JobsBase:
    """Rows and their indexes; a stored row is never changed in place, it is replaced."""

    def __init__(
        self, time: StepTime, journal: Journal, keys: MemoryKeys, signals: MemorySignals
    ) -> None:
        self._time = time
        self._journal = journal
        self._keys = keys
        self._signals = signals
        self._rows: dict[int, JobRow] = {}
        self._seqs: dict[str, int] = {}
        self._index = JobIndex()
        self._next_seq = 1
        self._flows: dict[FlowKey, int] = {}
        self._flow_keys: list[FlowKey] = []
        self._policies: dict[JobPolicy, int] = {}
        self._policy_list: list[JobPolicy] = []
        self._runs: dict[str, list[RunRow]] = {}

    def _put(self, row: JobRow) -> None:
        old = self._rows.get(row.seq)
        self._file(old, row)
        self._rows[row.seq] = row
        self._journal.note(lambda: self._restore(row, old))

    def _restore(self, row: JobRow, old: JobRow | None) -> None:
        self._file(row, old)
        if old is None:
            del self._rows[row.seq]
            del self._seqs[row.id]
        else:
            self._rows[row.seq] = old
            self._seqs[row.id] = row.seq

    def _file(self, old: JobRow | None, new: JobRow | None) -> None:
        before = filings(old) if old is not None else []
        after = filings(new) if new is not None else []
        for filing in before:
            if filing not in after:
                self._index.discard(filing)
        for filing in after:
            if filing not in before:
                self._index.add(filing)

    def _head(self, row: JobRow) -> Head:
        return Head(
            row.order,
            row.id,
            row.keyed,
            row.ticket,
            row.cascade.order() if row.cascade is not None else (),
            row.run,
            row.attempt,
            row.stage,
            row.subject,
            row.args,
            row.policy,
            row.blocked_ms,
        )
