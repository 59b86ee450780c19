"""Starting and finishing jobs: the heads of flows, and what a worker holds."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.flow import Head
from headway.stores.ledger.columns.jobs import read_heads
from headway.stores.ledger.columns.states import STATES
from headway.stores.ledger.packing import encode_cascade, encode_members
from headway.stores.ledger.rows import Finished, GatedStart, HeldRow, JobRow
from headway.stores.sqlite.database import number_list, text_list
from headway.stores.sqlite.tables.jobs.keeping import JobKeeping
from headway.stores.sqlite.tables.jobs.record import COLUMNS, HEAD

_FLOWS_WAITING = (
    "WITH RECURSIVE waiting (flow) AS ("
    " SELECT min(flow) FROM job INDEXED BY job_waiting WHERE state = 1 AND lane = ?1 AND flow > ?2"
    " UNION ALL SELECT (SELECT min(job.flow) FROM job INDEXED BY job_waiting"
    " WHERE state = 1 AND lane = ?1 AND job.flow > waiting.flow)"
    " FROM waiting WHERE waiting.flow IS NOT NULL)"
    " SELECT flow FROM waiting WHERE flow IS NOT NULL LIMIT ?3"
)
_HEADS = (
    f"SELECT {HEAD} FROM job INDEXED BY job_waiting"  # noqa: S608  (names of columns only)
    " WHERE state = 1 AND lane = ? AND flow = ? ORDER BY priority, due_at, seq LIMIT ?"
)
_START_PLAIN = (
    "UPDATE job SET state = 3, run = run + 1, attempt = attempt + 1, worker = ?2, request = ?3,"
    " claimed_at = ?4 WHERE seq IN carray(?1)"
)
_START_GATED = (
    "UPDATE job SET state = 3, run = run + 1, attempt = attempt + 1, worker = ?2, request = ?3,"
    " claimed_at = ?4, blocked_ms = blocked_ms + ?5, ticket = NULL, ticket_amount = 0,"
    " members = ?6, gated = ?6 IS NOT NULL, candidate = ?7, cascade = coalesce(?8, cascade)"
    " WHERE seq IN carray(?1)"
)
_FINISHING_LANES = (
    "SELECT count(*), min(lane), max(lane), max(gated) FROM job INDEXED BY job_id"
    " WHERE id IN carray(?1) AND run = ?2 AND worker = ?3 AND state = 3 AND care = 0"
)
_FINISHING = (
    "SELECT id, lane FROM job INDEXED BY job_id"
    " WHERE id IN carray(?1) AND run = ?2 AND worker = ?3 AND state = 3 AND care = 0"
)
_FINISH = (
    "UPDATE job INDEXED BY job_id SET state = 5, outcome = 'succeeded', last_worker = worker,"
    " worker = NULL, finished_at = ?4, purge_at = ?5"
    " WHERE id IN carray(?1) AND run = ?2 AND worker = ?3 AND state = 3 AND care = 0"
)
_HELD_BY = (
    "SELECT id, run, request, state, cancel_requested FROM job INDEXED BY job_worker"
    " WHERE state IN (3, 4) AND worker = ? ORDER BY priority, due_at, seq LIMIT ?"
)
_TAKEN_BY = (
    f"SELECT {COLUMNS} FROM job INDEXED BY job_worker"  # noqa: S608  (names of columns only)
    " WHERE state IN (3, 4) AND worker = ? AND request = ? AND state = 3"
    " ORDER BY priority, due_at, seq"
)
_HOLDERS = (
    "WITH RECURSIVE holder (worker) AS ("
    " SELECT min(worker) FROM job INDEXED BY job_worker WHERE state IN (3, 4) AND worker > 0"
    " UNION ALL SELECT (SELECT min(job.worker) FROM job INDEXED BY job_worker"
    " WHERE state IN (3, 4) AND job.worker > holder.worker)"
    " FROM holder WHERE holder.worker IS NOT NULL)"
    " SELECT worker FROM holder WHERE worker IS NOT NULL"
)
_HELD_IDS = (
    "SELECT id FROM job INDEXED BY job_worker"
    " WHERE state IN (3, 4) AND worker IS ? AND id > ? ORDER BY id LIMIT ?"
)


class JobStarting(JobKeeping):
    """The part of the job table that claims and settlements use."""

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        number = self._session.lanes.find(lane)
        if number is None:
            return []
        return [flow for (flow,) in self._db.execute(_FLOWS_WAITING, (number, after, limit))]

    def heads(self, flow: int, limit: int) -> list[Head]:
        lane = self._session.lanes.find(self._session.flows.thing(flow).lane)
        return read_heads(self._db.execute(_HEADS, (lane, flow, limit)).fetchall())

    def start_plain(self, seqs: Sequence[int], worker: str, request: int) -> None:
        who = self._session.words.number(worker)
        now = self._session.now
        self._db.execute(_START_PLAIN, (number_list(seqs), who, request, now))

    def start_gated(self, starts: Sequence[GatedStart], worker: str, request: int) -> None:
        who = self._session.words.number(worker)
        now = self._session.now
        # Jobs of one flow usually take the same, so they share one statement.
        alike: dict[tuple[int, bytes | None, str, bytes | None], list[int]] = {}
        for seq, members, candidate, cascade, blocked_ms in starts:
            taken = encode_members(members)
            same = (blocked_ms, taken, candidate, encode_cascade(cascade) if cascade else None)
            alike.setdefault(same, []).append(seq)
        for (blocked_ms, taken, candidate, kept), seqs in alike.items():
            which = number_list(seqs)
            bound = (which, who, request, now, blocked_ms, taken, candidate or None, kept)
            self._db.execute(_START_GATED, bound)

    def finish_plain(self, worker: str, runs: Sequence[tuple[str, int]], purge_at: int) -> Finished:
        who = self._session.words.find(worker)
        by_run: dict[int, list[str]] = {}
        if who is not None:
            for one, run in runs:
                by_run.setdefault(run, []).append(one)
        lanes: dict[tuple[str, int], str] = {}
        gated = False
        for run, ids in by_run.items():
            count, first, last, any_gated, which = self._finishing(ids, run, who or 0)
            if not count:
                continue
            gated = gated or any_gated
            lane = self._session.lanes.thing
            if count == len(ids) and first == last:
                if count == len(runs):
                    self._db.execute(_FINISH, (*which, self._session.now, purge_at))
                    return Finished([lane(first)] * count, gated)
                lanes.update(dict.fromkeys(((one, run) for one in ids), lane(first)))
            else:
                ended = self._db.execute(_FINISHING, which).fetchall()
                lanes.update(((one, run), lane(no)) for one, no in ended)
            self._db.execute(_FINISH, (*which, self._session.now, purge_at))
        return Finished([lanes.pop(one, None) for one in runs], gated)

    def _finishing(
        self, ids: list[str], run: int, who: int
    ) -> tuple[int, int, int, bool, tuple[object, ...]]:
        which = (text_list(ids), run, who)
        count, first, last, gated = self._db.execute(_FINISHING_LANES, which).get
        return count, first, last, bool(gated), which

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        who = self._session.words.find(worker)
        if who is None:
            return []
        most = -1 if limit is None else limit
        return [
            HeldRow(one, run, request, STATES[state], bool(cancel))
            for one, run, request, state, cancel in self._db.execute(_HELD_BY, (who, most))
        ]

    def held_counts(self, workers: Sequence[str]) -> dict[str, int]:
        return {one: len(self.held_by(one)) for one in workers}

    def taken_by(self, worker: str, request: int) -> list[JobRow]:
        who = self._session.words.find(worker)
        return [] if who is None else self._rows(self._db.execute(_TAKEN_BY, (who, request)))

    def held(self, after: str, limit: int) -> list[JobRow]:
        # By worker, because an index by id alone would be written at each start and end.
        holders = [None, *(worker for (worker,) in self._db.execute(_HOLDERS).fetchall())]
        ids: list[str] = []
        for worker in holders:
            ids += [one for (one,) in self._db.execute(_HELD_IDS, (worker, after, limit))]
        return list(self.load(sorted(ids)[:limit]).values())
