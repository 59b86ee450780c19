"""Write, load and remove jobs and their ended runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.core.state import QUEUED
from headway.stores.ledger.packing import decoder, encode
from headway.stores.ledger.rows import JobRow, RunRow
from headway.stores.sqlite.database import number_list, text_list
from headway.stores.sqlite.numbers import KEPT_EVENTS, LAST_SEQ
from headway.stores.sqlite.tables.jobs.base import JobsBase
from headway.stores.sqlite.tables.jobs.record import (
    COLUMNS,
    INSERT,
    INSERT_QUEUED,
    SAVE,
    Row,
    new_values,
    queued_values,
    saved_values,
)

_KNOWN = "SELECT id FROM job INDEXED BY job_id WHERE id IN carray(?)"
_KNOWN_ONE = "SELECT id FROM job INDEXED BY job_id WHERE id = ?"
_LOAD = f"SELECT {COLUMNS} FROM job INDEXED BY job_id WHERE id IN carray(?)"  # noqa: S608  (names of columns only)
_ARRIVED = f"SELECT {COLUMNS} FROM job WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608  (names of columns only)
_SEQS = "SELECT seq, id, key, flow FROM job INDEXED BY job_id WHERE id IN carray(?)"
_REMOVE = "DELETE FROM job WHERE seq IN carray(?)"
_REMOVE_RUNS = "DELETE FROM run WHERE job IN carray(?)"
_REMOVE_KNOWN = "DELETE FROM known INDEXED BY known_job WHERE job IN carray(?)"
_COUNT_EVENTS = "SELECT count(*) FROM event WHERE scope IN carray(?) AND kept_until IS NOT NULL"
_REMOVE_EVENTS = "DELETE FROM event WHERE scope IN carray(?)"
_REMOVE_KEY = "DELETE FROM dedupe WHERE tenant = ? AND key = ? AND job = ?"
_ADD_RUN = "INSERT INTO run VALUES ((SELECT seq FROM job WHERE id = ?), ?, ?)"
_RUNS = "SELECT body FROM run WHERE job = ? ORDER BY run"

_decode_run = decoder(RunRow)


class JobKeeping(JobsBase):
    """The part of the job table with whole rows."""

    def insert(self, rows: Sequence[JobRow]) -> None:
        session = self._session
        last = session.numbers.get(LAST_SEQ)
        lane = session.lanes.number
        queued: list[Row] = []
        others: list[Row] = []
        for seq, row in enumerate(rows, last + 1):
            row.seq = seq
            if row.state in QUEUED:
                queued.append(queued_values(row, seq, lane(row.lane)))
            else:
                others.append(new_values(session, row, seq))
        if queued:
            self._db.executemany(INSERT_QUEUED, queued)
        if others:
            self._db.executemany(INSERT, others)
        session.numbers.put(LAST_SEQ, last + len(rows))

    def known(self, ids: Sequence[str]) -> set[str]:
        if len(ids) == 1:
            found = self._db.execute(_KNOWN_ONE, ids).get
            return set() if found is None else {found}
        if not ids:
            return set()
        return {one for (one,) in self._db.execute(_KNOWN, (text_list(ids),))}

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        wanted = tuple(dict.fromkeys(ids))
        if not wanted:
            return {}
        rows = self._rows(self._db.execute(_LOAD, (text_list(wanted),)))
        found = {row.id: row for row in rows}
        return {one: found[one] for one in wanted if one in found}

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        return self._rows(self._db.execute(_ARRIVED, (after, limit)))

    def save(self, rows: Iterable[JobRow]) -> None:
        session = self._session
        self._db.executemany(SAVE, [saved_values(session, row) for row in rows])

    def remove(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        db, named = self._db, text_list(ids)
        found = db.execute(_SEQS, (named,)).fetchall()
        if not found:
            return
        tenant = self._session.flows.thing
        keys = [(tenant(flow).tenant, key, one) for _, one, key, flow in found if key is not None]
        gone = number_list([row[0] for row in found])
        kept = db.execute(_COUNT_EVENTS, (named,)).get
        if kept:
            self._session.numbers.add(KEPT_EVENTS, -kept)
        db.execute(_REMOVE_EVENTS, (named,))
        db.execute(_REMOVE_KNOWN, (named,))
        db.execute(_REMOVE_RUNS, (gone,))
        db.execute(_REMOVE, (gone,))
        db.executemany(_REMOVE_KEY, keys)

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        self._db.executemany(_ADD_RUN, [(row.job, row.run, encode(row)) for row in rows])

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        if not ids:
            return {}
        found: dict[str, list[RunRow]] = {}
        for seq, one, _, _ in self._db.execute(_SEQS, (text_list(ids),)).fetchall():
            runs = [_decode_run(body) for (body,) in self._db.execute(_RUNS, (seq,))]
            if runs:
                found[one] = runs
        return found
