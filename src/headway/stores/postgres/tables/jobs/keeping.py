"""Jobs are written, read by id and forgotten, and the runs that ended with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.core.state import QUEUED, State
from headway.stores.ledger.packing import decoder, encode
from headway.stores.ledger.rows import JobRow, RunRow
from headway.stores.postgres.arrays import Blobs, Ids, Numbers
from headway.stores.postgres.mode import Mode
from headway.stores.postgres.registry import digest
from headway.stores.postgres.statement import ANY_JOB, Ask, Each, Tell, of
from headway.stores.postgres.tables.ids import ids_of
from headway.stores.postgres.tables.jobs.base import JobsBase
from headway.stores.postgres.tables.jobs.record import (
    COLUMNS,
    INSERT,
    INSERT_FINAL,
    INSERT_ONE,
    SAVE,
    final_values,
    new_values,
    one_new,
    saved_values,
)
from headway.stores.postgres.tables.signals import DROP_EVENTS

_KNOWN = Ask("SELECT id::text FROM @job WHERE id = ANY ($1)", ANY_JOB)
_LOAD = f"SELECT {COLUMNS} FROM @job AS job WHERE job.id {{}}"  # noqa: S608  (names only)
JOBS = Each(_LOAD.format("= ANY ($1)"), ANY_JOB, ids_of, 1)
OF_KNOWN = _LOAD.format("= ANY (ARRAY(SELECT k.job FROM @known AS k WHERE key = ANY ($1)))")
"""The jobs that are known under keys."""
_ARRIVED = Ask(
    f"SELECT {COLUMNS} FROM @job WHERE seq > $1 ORDER BY seq LIMIT $2",  # noqa: S608  (names only)
    ANY_JOB,
)
_SEQS = Ask("SELECT seq, id::text, key, flow FROM @job AS job WHERE job.id = ANY ($1)", ANY_JOB)
_REMOVE = Tell("DELETE FROM @job WHERE seq = ANY ($1)", ANY_JOB)
_REMOVE_RUNS = Tell("DELETE FROM @run WHERE job = ANY ($1)", of("run"))
_REMOVE_KNOWN = Tell("DELETE FROM @known WHERE job = ANY ($1)", of("known"))
_REMOVE_EVENTS = Tell(
    DROP_EVENTS.format("scope = ANY ($1::uuid[]::text[])"),
    of("event", "counts"),
)
_REMOVE_KEYS = Tell(
    # By hash again: to a server that last saw the table empty a walk over it looks as good.
    "DELETE FROM @dedupe AS kept WHERE kept.hash = ANY ($1::bytea[]) AND EXISTS"
    " (SELECT FROM unnest($1::bytea[], $2::uuid[]) AS gone (hash, job)"
    " WHERE kept.hash = gone.hash AND kept.job = gone.job)",
    of("key"),
)
_ADD_RUNS = Tell(
    "INSERT INTO @run SELECT job.seq, new.run, new.body"
    " FROM unnest($1::uuid[], $2::bigint[], $3::bytea[]) AS new (id, run, body)"
    " JOIN @job AS job ON job.id = new.id",
    of("run"),
)
RUNS = Each(
    # From the jobs to their runs, and never the other way round.
    "SELECT job.id::text, run.body"
    " FROM (SELECT id, seq FROM @job AS job WHERE id = ANY ($1) OFFSET 0) AS job CROSS JOIN LATERAL"
    " (SELECT job, run, body FROM @run AS run WHERE run.job = job.seq OFFSET 0) AS run"
    " ORDER BY run.job, run.run",
    of("run"),
    ids_of,
)

_decode_run = decoder(RunRow)


class JobKeeping(JobsBase):
    """The part of the job table that keeps whole rows."""

    def insert(self, rows: Sequence[JobRow]) -> None:
        session = self._session
        self._moved()
        for row in rows:
            # Whatever is due as it comes stands behind what came before.
            if row.state is State.WAITING and row.due_at < session.now:
                self._wait_behind(row.flow, row.priority, row.due_at, 0)
        if not all(row.state in QUEUED for row in rows):
            # In one statement all the same: arrival is the order in which they are told.
            session.tell(INSERT_FINAL, *new_values(session, rows), *final_values(rows))
        elif len(rows) == 1:
            session.tell(INSERT_ONE, *one_new(session, rows[0]))
        else:
            session.tell(INSERT, *new_values(session, rows))

    def known(self, ids: Sequence[str]) -> set[str]:
        if self._session.mode is Mode.BLIND or not ids:
            return set()
        return {one for (one,) in self._session.ask(_KNOWN, ids_of(ids))}

    def load(self, ids: Iterable[str]) -> dict[str, JobRow]:
        wanted = ids_of(ids)
        if not wanted:
            return {}
        found = self._session.each(JOBS, wanted)
        return {row.id: row for row in self._rows([row for one in wanted for row in found[one]])}

    def arrived(self, after: int, limit: int) -> list[JobRow]:
        return self._rows(self._session.ask(_ARRIVED, after, limit))

    def save(self, rows: Iterable[JobRow]) -> None:
        changed = list(rows)
        if changed:
            self._moved()
            self._session.tell(SAVE, *saved_values(self._session, changed))
            self._session.parked.leave(row.seq for row in changed)
            for row in changed:
                if row.state is State.WAITING:
                    self._wait_behind(row.flow, row.priority, row.due_at, row.seq)
                if row.parked_at is not None:
                    self._session.quiet.discard(row.parked_at)
                for gate in (row.parked_at, row.ticket):
                    if gate is not None:
                        self._session.parked.forget(gate)

    def remove(self, ids: Sequence[str]) -> None:
        session, named = self._session, ids_of(ids)
        found = session.ask(_SEQS, named) if named else []
        if not found:
            return
        flow = session.flows.thing
        keys = {
            digest(flow(number).tenant.encode(), key.encode()): one
            for _, one, key, number in found
            if key is not None
        }
        gone = Numbers(row[0] for row in found)
        self._moved()
        session.tell(_REMOVE_EVENTS, named)
        session.kept_events = None
        session.tell(_REMOVE_KNOWN, named)
        session.tell(_REMOVE_RUNS, gone)
        session.tell(_REMOVE, gone)
        if keys:
            session.tell(_REMOVE_KEYS, Blobs(keys), Ids(keys.values()))

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        if not rows:
            return
        self._session.tell(
            _ADD_RUNS,
            Ids(row.job for row in rows),
            Numbers(row.run for row in rows),
            Blobs(encode(row) for row in rows),
        )

    def runs(self, ids: Sequence[str]) -> dict[str, list[RunRow]]:
        found: dict[str, list[RunRow]] = {}
        wanted = ids_of(ids)
        known = self._session.each(RUNS, wanted) if wanted else {}
        for one in wanted:
            if known[one]:
                found[one] = [_decode_run(body) for _, body in known[one]]
        return found
