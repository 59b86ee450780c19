"""Jobs start and end: the heads of flows, and what a worker holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.core.flow import Head
from headway.stores.ledger.columns.jobs import read_heads
from headway.stores.ledger.columns.states import STATES
from headway.stores.ledger.packing import encode_cascade, encode_members
from headway.stores.ledger.rows import Finished, GatedStart, HeldRow, JobRow
from headway.stores.postgres.arrays import Blobs, Numbers, Texts
from headway.stores.postgres.marks import WHOLE
from headway.stores.postgres.mode import Mode
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Each, Row, Rows, Tell, of
from headway.stores.postgres.tables.ids import ids_of
from headway.stores.postgres.tables.jobs.keeping import JobKeeping
from headway.stores.postgres.tables.jobs.record import COLUMNS, HEAD

FLOWS_WAITING = (
    # The flows that have marks are looked at from there on; the others in the gaps between them.
    "WITH RECURSIVE lane AS (SELECT no FROM @lane WHERE name = $1), waiting (flow, below) AS ("
    " SELECT one.flow, gap.below FROM unnest($2::bigint[], $3::bigint[]) AS gap (after, below)"
    " CROSS JOIN LATERAL (SELECT flow FROM @job WHERE state = 1 AND lane = (SELECT no FROM lane)"
    " AND flow > gap.after AND flow < gap.below ORDER BY flow LIMIT 1) AS one"
    " UNION ALL SELECT one.flow, waiting.below FROM waiting CROSS JOIN LATERAL ("
    " SELECT job.flow FROM @job AS job WHERE state = 1 AND lane = (SELECT no FROM lane)"
    " AND job.flow > waiting.flow AND job.flow < waiting.below ORDER BY job.flow LIMIT 1) AS one),"
    " marked AS (SELECT DISTINCT part.flow FROM unnest($5::bigint[], $6::bigint[], $7::bigint[],"
    " $8::bigint[], $9::bigint[]) AS part (flow, priority, due_at, seq, below)"
    " CROSS JOIN LATERAL (SELECT FROM @job AS job WHERE state = 1"
    " AND lane = (SELECT no FROM lane) AND job.flow = part.flow"
    " AND (job.priority, job.due_at, job.seq) >= (part.priority, part.due_at, part.seq)"
    " AND job.priority < part.below"
    # The order is the index's: without it, any job would do, and all are walked over to find it.
    " ORDER BY job.lane, job.flow, job.priority, job.due_at, job.seq LIMIT 1) AS one)"
    " SELECT flow FROM (SELECT flow FROM waiting UNION ALL SELECT flow FROM marked) AS one"
    " ORDER BY flow LIMIT $4"
)
HEADS = (
    f"SELECT part.flow, head.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[],"  # noqa: S608  (names only)
    " $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])"
    " AS part (lane, flow, most, priority, due_at, seq, below)"
    f" CROSS JOIN LATERAL (SELECT {HEAD} FROM @job AS job"
    " WHERE state = 1 AND job.lane = part.lane AND job.flow = part.flow"
    " AND (job.priority, job.due_at, job.seq) >= (part.priority, part.due_at, part.seq)"
    " AND job.priority < part.below ORDER BY priority, due_at, seq LIMIT part.most) AS head"
)
# The claim's time is fixed by its first statement; its later ones see jobs that came after it.
_START_PLAIN = Tell(
    "UPDATE @job SET state = 3, run = run + 1, attempt = attempt + 1, worker = $2, request = $3,"
    " claimed_at = greatest(@now, created_at) WHERE seq = ANY ($1)",
    of("waiting", "held", "expiry", "job"),
)
_START_GATED = Tell(
    "UPDATE @job AS job SET state = 3, run = run + 1, attempt = attempt + 1, worker = $2,"
    " request = $3, claimed_at = greatest(@now, job.created_at),"
    " blocked_ms = job.blocked_ms + new.blocked_ms,"
    " ticket = NULL, ticket_amount = 0, members = new.members, gated = new.members IS NOT NULL,"
    " candidate = new.candidate, cascade = coalesce(new.cascade, job.cascade)"
    " FROM unnest($1::bigint[], $4::bigint[], $5::bytea[], $6::text[], $7::bytea[])"
    " AS new (seq, blocked_ms, members, candidate, cascade) WHERE job.seq = new.seq",
    of("waiting", "held", "expiry", "job"),
)
_FINISH = (
    "UPDATE @job AS job SET state = 5, outcome = 'succeeded', last_worker = worker, worker = NULL,"
    " finished_at = @now, purge_at = @now + $4"
    " WHERE job.id = ANY ($1) AND job.run = $2"
    # Not by the index of a worker's jobs: its statistics say that it is empty whenever it was.
    " AND job.worker + 0 = $3 AND job.state + 0 = 3 AND NOT job.care{}"
    " RETURNING job.id::text, job.lane, job.gated"
)
FINISH = Tell(_FINISH.format(""), of("held", "job"), beside=Mode.SHARED)
FINISH_LIVE = _FINISH.format(
    " AND (SELECT NOT who.lapsed AND who.lease_until > @now FROM @worker AS who"
    " WHERE who.id = $5 ORDER BY who.no DESC LIMIT 1)"
)
"""The same, sent before it is known whether the worker's lease lives."""
_HELD_BY = Ask(
    "SELECT id::text, run, request, state, cancel_requested FROM @job"
    " WHERE state IN (3, 4) AND worker = $1 ORDER BY priority, due_at, seq LIMIT $2",
    of("held"),
    ahead=True,
)
_HELD_COUNTS = Ask(
    "SELECT who.no, (SELECT count(*) FROM @job WHERE state IN (3, 4) AND worker = who.no)"
    " FROM unnest($1::bigint[]) AS who (no)",
    of("held"),
)
HELD_OF = Each(
    # The first of each worker in the order of `_HELD_BY`; no sweep takes more.
    "SELECT who.no, one.* FROM unnest($1::bigint[]) AS who (no) CROSS JOIN LATERAL"
    " (SELECT id::text, run, request, state, cancel_requested FROM @job"
    " WHERE state IN (3, 4) AND worker = who.no ORDER BY priority, due_at, seq LIMIT 1000) AS one",
    of("held"),
    Numbers,
)
_TAKEN_BY = Ask(
    f"SELECT {COLUMNS} FROM @job"  # noqa: S608  (names only)
    " WHERE state IN (3, 4) AND worker = $1 AND request = $2 AND state = 3"
    " ORDER BY priority, due_at, seq",
    of("held"),
)
_HELD_IDS = Ask(
    "WITH RECURSIVE holder (worker) AS ("
    " (SELECT worker FROM @job WHERE state IN (3, 4) AND worker IS NOT NULL"
    " ORDER BY worker LIMIT 1)"
    " UNION ALL SELECT (SELECT job.worker FROM @job AS job WHERE state IN (3, 4)"
    " AND job.worker > holder.worker ORDER BY job.worker LIMIT 1)"
    " FROM holder WHERE holder.worker IS NOT NULL),"
    " held AS (SELECT one.id FROM holder CROSS JOIN LATERAL (SELECT job.id FROM @job AS job"
    " WHERE state IN (3, 4) AND job.worker = holder.worker AND job.id > $1::uuid"
    " ORDER BY job.id LIMIT $2) AS one"
    " UNION ALL (SELECT job.id FROM @job AS job WHERE state IN (3, 4) AND worker IS NULL"
    " AND job.id > $1::uuid ORDER BY job.id LIMIT $2))"
    " SELECT id::text FROM held ORDER BY held.id LIMIT $2",
    of("held"),
)
_NONE = "00000000-0000-0000-0000-000000000000"
_LAST = 2**62
TOGETHER = 32
"""Flows whose heads are read in one go."""


class JobStarting(JobKeeping):
    """The part of the job table that claims and settlements use."""

    def flows_waiting(self, lane: str, after: int, limit: int) -> list[int]:
        session = self._session
        asked = (lane, after, limit)
        rows = session.lanes_asked.get(asked)
        if rows is None:
            rows = session.fetch(FLOWS_WAITING, flows_bound(session, *asked))
            session.lanes_asked[asked] = rows
        found = [flow for (flow,) in rows]
        flow_of, marks = session.flows.thing, session.shared.marks
        missed = [one for one in marks.flows() if one > after and one not in found]
        missed = [one for one in missed if flow_of(one).lane == lane]
        if missed and len(found) < limit:
            # What was committed late may stand before its mark.
            marks.drop(missed)
            rows = session.fetch(FLOWS_WAITING, flows_bound(session, *asked))
            found = [flow for (flow,) in rows]
        session.found = found
        return found

    def heads(self, flow: int, limit: int) -> list[Head]:
        session = self._session
        session.wanted[flow] = max(limit, session.wanted.get(flow, 0))
        known = session.heads.get(flow)
        if known is None or (known[0] < limit and len(known[1]) >= known[0]):
            self._read_heads(flow, limit)
            known = session.heads[flow]
        if flow in session.bounded and len(known[1]) < limit:
            # What was committed late may stand before its mark.
            session.shared.marks.drop([flow])
            self._read_heads(flow, limit)
            known = session.heads[flow]
        return read_heads(known[1][:limit])

    def _read_heads(self, flow: int, limit: int) -> None:
        """Read the heads of a flow, and of those that will be asked for next."""
        session = self._session
        flows = [flow]
        if flow in session.found:
            place = session.found.index(flow) + 1
            others = session.found[place : place + TOGETHER - 1]
            flows += [one for one in others if one not in session.heads]
        wanted = dict.fromkeys(flows, limit)
        take_heads(session, wanted, session.fetch(HEADS, heads_bound(session, wanted)))

    def start_plain(self, seqs: Sequence[int], worker: str, request: int) -> None:
        who = self._session.words.number(worker)
        self._leave(seqs)
        self._session.tell(_START_PLAIN, Numbers(seqs), who, request)

    def start_gated(self, starts: Sequence[GatedStart], worker: str, request: int) -> None:
        who = self._session.words.number(worker)
        self._leave([start.seq for start in starts])
        self._session.tell(
            _START_GATED,
            Numbers(start.seq for start in starts),
            who,
            request,
            Numbers(start.blocked_ms for start in starts),
            Blobs(encode_members(start.members) for start in starts),
            Texts(start.candidate or None for start in starts),
            Blobs(encode_cascade(start.cascade) for start in starts),
        )

    def finish_plain(self, worker: str, runs: Sequence[tuple[str, int]], purge_at: int) -> Finished:
        session = self._session
        ahead, rows = session.finished, list[Row]()
        left: dict[int, list[str]] = {}
        for one, run in runs:
            if (worker, run, one) not in ahead:
                left.setdefault(run, []).append(one)
            elif (row := ahead[worker, run, one]) is not None:
                rows.append(row)
                ahead[worker, run, one] = None
        who = session.words.find(worker) if left else None
        if who is not None:
            keep_ms = purge_at - session.now
            for run, same in left.items():
                rows += session.do(FINISH, ids_of(same), run, who, keep_ms)
        lane = session.lanes.thing
        lanes = {one: lane(number) for one, number, _ in rows}
        return Finished([lanes.get(one) for one, _ in runs], any(row[2] for row in rows))

    def held_by(self, worker: str, limit: int | None = None) -> list[HeldRow]:
        session = self._session
        who = session.words.find(worker)
        if who is None:
            return []
        known = session.known_of(HELD_OF).get(who) if limit is not None else None
        if known is not None:
            rows = [row[1:] for row in known[:limit]]
        else:
            rows = session.ask(_HELD_BY, who, limit)
        return [
            HeldRow(one, run, request, STATES[state], cancel)
            for one, run, request, state, cancel in rows
        ]

    def held_counts(self, workers: Sequence[str]) -> dict[str, int]:
        numbers = self._session.words.numbers(workers)
        rows = self._session.ask(_HELD_COUNTS, Numbers(numbers.values())) if numbers else ()
        counts = dict(rows)
        return {one: counts[number] for one, number in numbers.items()}

    def taken_by(self, worker: str, request: int) -> list[JobRow]:
        who = self._session.words.find(worker)
        return [] if who is None else self._rows(self._session.ask(_TAKEN_BY, who, request))

    def held(self, after: str, limit: int) -> list[JobRow]:
        rows = self._session.ask(_HELD_IDS, (*ids_of((after,)), _NONE)[0], limit)
        return list(self.load(one for (one,) in rows).values())


def flows_bound(session: Session, lane: str, after: int, limit: int) -> tuple[object, ...]:
    """What `FLOWS_WAITING` is bound to."""
    marks = session.shared.marks
    marked = sorted(flow for flow in marks.flows() if flow > after)
    parts = [(flow, *part) for flow in marked for part in marks.ranges(flow)]
    columns = zip(*parts, strict=True) if parts else ((),) * 5
    return (
        lane,
        Numbers((after, *marked)),
        Numbers((*marked, _LAST)),
        limit,
        *(Numbers(column) for column in columns),
    )


def heads_bound(session: Session, wanted: Mapping[int, int]) -> tuple[Numbers, ...]:
    """What `HEADS` is bound to.

    Args:
        wanted: how many heads, by flow.
    """
    lane, flow, marks = session.lanes.number, session.flows.thing, session.shared.marks
    parts: list[tuple[int, ...]] = []
    for one, most in wanted.items():
        ranges = marks.ranges(one)
        if ranges is not WHOLE:
            session.bounding.add(one)
        parts += [(lane(flow(one).lane), one, most, *part) for part in ranges]
    return tuple(Numbers(column) for column in zip(*parts, strict=True))


def take_heads(session: Session, wanted: Mapping[int, int], rows: Rows) -> None:
    """Remember for the step what `HEADS` found."""
    found: dict[int, Rows] = {flow: [] for flow in wanted}
    for row in rows:
        found[row[0]].append(row[1:])
    for flow, heads in found.items():
        session.heads[flow] = (wanted[flow], heads[: wanted[flow]])
        if flow in session.bounding:
            session.bounded.add(flow)
        else:
            session.bounded.discard(flow)
    session.bounding.clear()
