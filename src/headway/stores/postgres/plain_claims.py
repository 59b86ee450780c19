"""Claims of plain lanes in one trip, beside other such claims, written entirely in SQL.

A lane is plain while none of its flows has gates, it is not fair, and no implicit gate limits it.
Then there is nothing to decide: the first waiting jobs start, in order. So a claim of such a lane
is a shared step: it locks the rows that it starts, and skips rows locked by another claim. Its
first statement checks its assumptions in the same transaction. If one does not hold, nothing is
written, and the verb makes the claim in an exclusive step.

Scheduled jobs that are due start directly, in the same order; those that it does not start become
waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headway.contract.claims import Claimed, ClaimReply, ClaimRequest
from headway.core.errors import OutcomeUnknown, StoreError
from headway.core.state import State
from headway.stores.ledger.columns import CODES
from headway.stores.ledger.packing import encode
from headway.stores.ledger.rows import ClosedPeriod
from headway.stores.ledger.verbs.claim import check_claim
from headway.stores.postgres.arrays import Numbers, Texts
from headway.stores.postgres.link import BoundStatement
from headway.stores.postgres.low_water_marks import WHOLE, Range
from headway.stores.postgres.numbers import BEHIND, FACT, LAG_MS, LANES, MOST_UNFOLDED, same_store
from headway.stores.postgres.shared import CachedLanes, Done
from headway.stores.postgres.statement import NeedsMore
from headway.stores.postgres.steps import Steps
from headway.stores.postgres.tables.gates import PASSES
from headway.stores.postgres.tables.job_statements import FROM_MARK
from headway.stores.sql.statement import (
    DEFINITIONS,
    FIRST_TOTAL,
    HIGH_WATER,
    WIDTH,
    Row,
    Rows,
)

MOST_FLOWS = 32
"""Maximum number of flows of a plain lane."""
MOST_LANES, MOST_WORKERS = 256, 1_024
"""Maximum number of lanes and workers that a process remembers."""
MOST_SKIPPED = 1_000
"""Maximum number of extra jobs that a claim examines because others may be locked."""
LONGEST_PAUSE = 32
"""Maximum number of a lane's exclusive claims before a plain claim is attempted again."""
MOST_DUE = 200
"""Maximum number of due scheduled jobs; of more, an exclusive claim makes a batch waiting."""
RETRY_MS = 50
"""Milliseconds before a claim that found only locked jobs is repeated."""

_LAST = 2**62
_NOTHING_DONE = Done(wrote=False, woken={}, notified=False)

_PLAIN = "flow = ANY ({}::bigint[]) AND (run > 0 OR entry IS NULL)"
_HOLDS = f"""
{FACT}
-- If the verb would do more than start the first jobs, this fails, and with it the whole claim.
-- A missing fact fails like a different one.
SELECT 1 / coalesce((
    coalesce((SELECT n FROM fact WHERE key = {DEFINITIONS}), 0) = $1::bigint
    AND coalesce((SELECT n FROM fact WHERE key = {LANES}), 0) = $2::bigint
    AND {same_store(3)}
    -- The worker's lease is live and need not be extended without a start; the claim is no
    -- repetition.
    AND EXISTS (
        SELECT FROM (SELECT * FROM @worker WHERE id = $8 ORDER BY no DESC LIMIT 1) AS who
        WHERE NOT lapsed AND lease_until >= @now + $9::bigint / 2 AND request < $10::bigint)
    -- Nothing has expired, and no timer has run out. Due are only a few plain jobs, no fires.
    AND NOT EXISTS (
        SELECT FROM @job
        WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0 AND expires_at <= @now)
    AND NOT EXISTS (SELECT FROM @gate WHERE timer_at <= @now AND timer_at IS NOT NULL)
    AND (
        SELECT count(*) FILTER (WHERE {_PLAIN.format("$15")}) = least(count(*), {MOST_DUE})
        FROM (
            SELECT flow, run, entry FROM @job
            WHERE state = 0 AND lane = $11::bigint AND due_at <= @now
            ORDER BY due_at LIMIT {MOST_DUE + 1}) AS due)
    -- No implicit gate limits it, and no other flow has waiting jobs.
    AND NOT EXISTS (
        SELECT FROM unnest($12::text[]) AS wanted
        CROSS JOIN LATERAL (
            SELECT * FROM @gate AS gate WHERE gate.name = wanted ORDER BY no DESC LIMIT 1) AS gate
        WHERE NOT ({PASSES}))
    AND NOT EXISTS (
        SELECT FROM unnest($13::bigint[], $14::bigint[]) AS gap (after, below)
        CROSS JOIN LATERAL (
            SELECT FROM @job AS job
            WHERE state = 1 AND lane = $11::bigint AND job.flow > gap.after AND job.flow < gap.below
            ORDER BY job.flow LIMIT 1) AS one)
)::int, 0)
"""  # noqa: S608  (constants only)
_WAITING = """(
        SELECT job.priority, job.due_at, job.seq, job.state FROM @job AS job
        WHERE state = 1 AND job.lane = $1::bigint AND job.flow = part.flow{}
        ORDER BY job.priority, job.due_at, job.seq LIMIT $3::bigint) AS head"""
_START = f"""
-- From the process's low-water marks on, if no exclusive step has put jobs before them since.
WITH behind AS MATERIALIZED (
    SELECT head.*
    FROM unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
        AS part (flow, priority, due_at, seq, below)
    CROSS JOIN LATERAL {_WAITING.format(FROM_MARK)}
    WHERE (SELECT coalesce(max(n), 0) FROM @number WHERE key = {BEHIND}) = $9::bigint),
-- An enqueue may have been committed since the assumptions were checked.
due AS MATERIALIZED (
    SELECT priority, due_at, seq, flow, state FROM @job
    WHERE state = 0 AND lane = $1::bigint AND due_at <= @now AND {_PLAIN.format("$10")}
    ORDER BY due_at LIMIT {MOST_DUE}),
-- If these are too few, from the whole flows: a late commit may have put jobs before a mark.
first AS MATERIALIZED (
    SELECT head.*, row_number() OVER (ORDER BY head.priority, head.due_at, head.seq) AS place
    FROM (
        SELECT * FROM behind WHERE (SELECT count(*) FROM behind) >= $2::bigint
        UNION ALL
        SELECT head.* FROM unnest($10::bigint[]) AS part (flow)
        CROSS JOIN LATERAL {_WAITING.format("")}
        WHERE (SELECT count(*) FROM behind) < $2::bigint
        UNION ALL
        SELECT priority, due_at, seq, state FROM due) AS head
    ORDER BY head.priority, head.due_at, head.seq LIMIT $3::bigint),
-- Lock them one by one, in order, until there are enough. Look each up by its number, because a
-- join might scan all waiting jobs.
mine AS MATERIALIZED (
    SELECT job.seq, head.place, head.state
    FROM (SELECT * FROM first ORDER BY place) AS head
    CROSS JOIN LATERAL (
        SELECT seq FROM @job AS job WHERE job.seq = head.seq AND job.state + 0 = head.state
        FOR UPDATE SKIP LOCKED) AS job
    LIMIT $2::bigint),
rest AS MATERIALIZED (
    SELECT due.* FROM due
    CROSS JOIN LATERAL (
        SELECT FROM @job AS job WHERE job.seq = due.seq AND job.state + 0 = 0
        FOR UPDATE SKIP LOCKED) AS job
    WHERE due.seq NOT IN (SELECT seq FROM mine)),
promoted AS (UPDATE @job SET state = 1 WHERE seq = ANY (ARRAY (SELECT seq FROM rest))),
started AS (
    UPDATE @job AS job
    SET state = 3, attempt = attempt + 1, worker = $11, request = $12,
        claimed_at = greatest(@now, created_at),
        -- Only the verb can start a job with its own gates, or one that waited through a closing;
        -- an expired one was committed since the assumptions were checked.
        run = run + 1 / (
            keyed IS NULL AND ticket IS NULL AND cascade IS NULL AND due_at >= $16::bigint
            AND (run > 0 OR coalesce(expires_at, @now + 1) > @now))::int
    FROM mine WHERE job.seq = mine.seq
    RETURNING job.priority, job.due_at, job.seq, job.flow, job.id, job.run, job.attempt, job.stage,
        job.subject, job.args, job.policy, mine.place),
gone AS (
    DELETE FROM @worker
    WHERE id = $13 AND no = (SELECT no FROM @worker WHERE id = $13 ORDER BY no DESC LIMIT 1)
        AND EXISTS (SELECT FROM mine)
    RETURNING id, name, lanes, lease_until, no),
lease AS (
    INSERT INTO @worker
    SELECT id, name, coalesce(nullif(lanes, $17), $18), @now,
        greatest(lease_until, @now + $14::bigint), $12, false, no + 1
    FROM gone RETURNING no),
counted AS (
    INSERT INTO @delta SELECT $15::bigint[], ARRAY[due - n, -due, n, n]
    FROM (
        SELECT count(place) AS n, count(*) FILTER (WHERE state = 0) AS due
        FROM (SELECT place, state FROM mine UNION ALL SELECT NULL, state FROM rest) AS one) AS one
    WHERE n > 0 OR due > 0),
raised AS (
    UPDATE @number SET n = @now
    WHERE key = {HIGH_WATER} AND n < @now - {LAG_MS} AND EXISTS (SELECT FROM mine))
-- If a beat has replaced the worker's row in the meantime, there is no lease row, and this fails.
SELECT priority, due_at, seq, flow, id::text, run, attempt, stage, subject, args, policy,
    place / (SELECT count(*) FROM lease) AS place
FROM started
UNION ALL SELECT priority, due_at, seq, flow, NULL, 0, 0, '', '', '', 0, NULL FROM rest
ORDER BY place
"""  # noqa: S608  (constants only)
_THEN = """
SELECT
    least(
        (
            SELECT due_at FROM @job WHERE state = 0 AND lane = $1::bigint AND due_at > @now
            ORDER BY due_at LIMIT 1),
        (SELECT timer_at FROM @gate WHERE timer_at IS NOT NULL ORDER BY timer_at LIMIT 1)),
    (SELECT lease_until FROM @worker WHERE id = $2 ORDER BY no DESC LIMIT 1),
    EXISTS (
        SELECT FROM unnest($3::bigint[]) AS part (flow)
        CROSS JOIN LATERAL (
            SELECT FROM @job AS job
            WHERE state = 1 AND job.lane = $1::bigint AND job.flow = part.flow
            ORDER BY job.priority, job.due_at, job.seq LIMIT 1) AS one)
    OR EXISTS (SELECT FROM @job WHERE state = 0 AND lane = $1::bigint AND due_at <= @now)
"""


@dataclass(slots=True)
class _Lane:
    """A lane that may be plain.

    Attributes:
        flows: numbers of flows that had waiting jobs, in order.
        gates: names of the implicit gates that must not limit them.
        read_from: `Shared.forgotten` and the epoch when the flows were read.
        failed: number of consecutive plain claims that were refused.
        pause: exclusive claims left before a plain one is attempted again.
    """

    flows: tuple[int, ...]
    gates: Texts
    read_from: tuple[int, int]
    failed: int = 0
    pause: int = 0


@dataclass(slots=True)
class PlainClaims:
    """The claims of plain lanes of one process.

    Args:
        steps: on the connection of these claims.
        closed_periods: shared by the process.
    """

    steps: Steps
    closed_periods: Mapping[int, ClosedPeriod]
    _lanes: dict[str, _Lane] = field(default_factory=dict[str, _Lane])
    _workers: set[str] = field(default_factory=set[str])

    def may_claim(self, request: ClaimRequest) -> bool:
        """Return whether this process may make a claim as one of a plain lane."""
        if len(request.lanes) != 1 or request.after or request.worker not in self._workers:
            return False
        shared = self.steps.shared
        if shared.options.pooled:
            # Its single trip has no BEGIN to set the isolation level, and a pooler may use another
            # connection for the next trip.
            return False
        name = request.lanes[0][0]
        lane = self._lanes.get(name)
        if lane is None:
            return False
        if lane.pause:
            lane.pause -= 1
            return False
        # An exclusive step has to fold the counts that these claims append.
        return shared.unfolded < MOST_UNFOLDED and _is_simple(shared.lanes, name)

    def learn(self, request: ClaimRequest, reply: ClaimReply, found: Iterable[int]) -> None:
        """Record what an exclusive claim has read.

        Args:
            found: flows of its lane that had waiting jobs when it started.
        """
        if len(self._workers) >= MOST_WORKERS:
            self._workers.clear()
        self._workers.add(request.worker)
        name = request.lanes[0][0]
        if len(request.lanes) != 1 or reply.after or not reply.jobs:
            return
        shared = self.steps.shared
        read_from = (shared.forgotten, shared.time.epoch)
        known = self._lanes.get(name)
        if known is not None and known.read_from != read_from:
            known = None
        flows = tuple(sorted({*found, *(known.flows if known else ())}))
        if not self._is_plain(name, flows):
            self._lanes.pop(name, None)
            return
        if any(job.gated or job.candidate for job in reply.jobs):
            # Some of its jobs have their own gates; keep what is known of the others.
            return
        if known is None or known.flows != flows:
            if len(self._lanes) >= MOST_LANES:
                self._lanes.clear()
            flow = shared.registry.flows.value
            keys = [flow(number) for number in flows]
            gates = {"all", f"lane:{name}", *(f"tenant:{key.tenant}" for key in keys)}
            gates.update(f"kind:{key.kind}" for key in keys)
            failed, pause = (known.failed, known.pause) if known else (0, 0)
            self._lanes[name] = _Lane(flows, Texts(sorted(gates)), read_from, failed, pause)

    def _is_plain(self, name: str, flows: Sequence[int]) -> bool:
        if not _is_simple(self.steps.shared.lanes, name):
            return False
        flow = self.steps.shared.registry.flows.value
        return 0 < len(flows) <= MOST_FLOWS and not any(flow(number).shared for number in flows)

    def claim(self, request: ClaimRequest) -> tuple[ClaimReply | None, Done]:
        """See `Store.claim`.

        Returns:
            The reply, or None if the claim was not made and needs an exclusive step; and what the
            step has done.

        Raises:
            OutcomeUnknown: the connection broke; repeating the request finds what it started.
        """
        check_claim(request)
        name = request.lanes[0][0]
        lane = self._lanes.get(name)
        if lane is None:
            return None, _NOTHING_DONE
        try:
            reply = self._claim(request, name, lane)
        except NeedsMore:
            lane.failed = min(lane.failed + 1, LONGEST_PAUSE)
            lane.pause = min(2**lane.failed, LONGEST_PAUSE) - 2
            return None, _NOTHING_DONE
        lane.failed = 0
        return reply, _NOTHING_DONE

    def _claim(self, request: ClaimRequest, name: str, lane: _Lane) -> ClaimReply:
        steps, session, marks = self.steps, self.steps.session, self.steps.shared.marks
        # Read first: if another thread changes marks after this, the claim reads whole flows, and
        # raises no mark.
        lowered, version = marks.lowered, marks.version
        marked = self._marked(lane.flows)
        number = session.lanes.number(name)

        promoted: list[tuple[int, int, int, int]] = []

        def run(spare: int) -> tuple[Rows, Row]:
            check = self._check_statement(request, name, lane, number)
            start = self._start_statement(request, lane, number, marked, version, spare)
            then = (_THEN, (number, request.worker, Numbers(lane.flows)))
            _, found, (after,) = steps.run_in_one_trip([check, start, then])
            # Of a job that was only promoted, its place in its flow is returned, but not its id.
            promoted.extend(row[:4] for row in found if row[4] is None)
            return [row for row in found if row[4] is not None], after

        spare = min(4 * request.n, MOST_SKIPPED)
        started, (next_at, lease_until, left) = run(spare)
        if left and not started and spare < MOST_SKIPPED:
            # Other claims have locked all examined jobs, and nothing was written: examine more.
            started, (next_at, lease_until, left) = run(MOST_SKIPPED)
        try:
            jobs = self._claimed(started, name)
        except StoreError as error:
            message = "the jobs were started, but their policies could not be read"
            raise OutcomeUnknown(message, hint="repeat the call") from error
        short = len(jobs) < request.n
        if jobs:
            steps.shared.unfolded += 1
        if not short:
            self._rise(name, started, lowered)
        elif marked:
            marks.drop(marked)
        for priority, due_at, seq, flow in promoted:
            # If it was committed late, it may precede a mark.
            marks.lower(flow, priority, due_at, seq)
        if left and not jobs:
            again_at = session.now + RETRY_MS
            next_at = again_at if next_at is None else min(next_at, again_at)
        return ClaimReply(
            jobs=jobs,
            now=session.now,
            lease_until=lease_until,
            next_at=next_at,
            again=not short or (left and bool(jobs)),
        )

    def _marked(self, flows: Sequence[int]) -> Mapping[int, tuple[Range, ...]]:
        """Return the ranges of all flows; empty if all flows must be read whole."""
        ranges = {flow: self.steps.shared.marks.ranges(flow) for flow in flows}
        return {} if all(parts is WHOLE for parts in ranges.values()) else ranges

    def _check_statement(
        self, request: ClaimRequest, name: str, lane: _Lane, number: int
    ) -> BoundStatement:
        shared = self.steps.shared
        # Read each once, because other threads replace them.
        known, templates, lanes = shared.known_facts(), shared.templates, shared.lanes
        if templates is None or not _is_simple(lanes, name):
            raise NeedsMore
        if lane.read_from != (shared.forgotten, shared.time.epoch):
            # Its flows may have been numbered in another store.
            raise NeedsMore
        facts = (templates.version, lanes.version, *known)
        return _HOLDS, (
            *facts,
            request.worker,
            request.lease_ms,
            request.request,
            number,
            lane.gates,
            Numbers((-1, *lane.flows)),
            Numbers((*lane.flows, _LAST)),
            Numbers(lane.flows),
        )

    def _start_statement(
        self,
        request: ClaimRequest,
        lane: _Lane,
        number: int,
        marked: Mapping[int, tuple[Range, ...]],
        version: int,
        spare: int,
    ) -> BoundStatement:
        words = self.steps.session.words.number
        periods = [period for flow in lane.flows if (period := self.closed_periods.get(flow))]
        if any(period.until is None for period in periods):
            raise NeedsMore
        parts = [(flow, *part) for flow, ranges in marked.items() for part in ranges]
        columns = zip(*parts, strict=True) if parts else ((),) * 5
        first = number * WIDTH
        keys = (
            first + CODES[State.WAITING],
            first + CODES[State.SCHEDULED],
            first + CODES[State.RUNNING],
            FIRST_TOTAL - words("started"),
        )
        return _START, (
            number,
            request.n,
            request.n + spare,
            *map(Numbers, columns),
            version,
            Numbers(lane.flows),
            words(request.worker),
            request.request,
            request.worker,
            request.lease_ms,
            Numbers(keys),
            max((period.until or 0 for period in periods), default=0),
            encode(()),
            encode((request.lanes[0][0],)),
        )

    def _rise(self, lane: str, started: Rows, lowered: int) -> None:
        """Raise the low-water marks of a lane's flows, up to the first skipped job.

        A skipped job waits again if the claim that locked it fails.
        """
        floors: dict[int, dict[int, tuple[int, int]]] = {}
        counts: dict[int, int] = {}
        for count, (priority, due_at, seq, flow, *_, place) in enumerate(started, 1):
            if place == count:
                floors.setdefault(flow, {})[priority] = (due_at, seq)
            counts[flow] = counts.get(flow, 0) + 1
        for flow, n in counts.items():
            self.steps.shared.marks.rise(lane, flow, floors.get(flow, {}), n, lowered)

    def _claimed(self, started: Rows, lane: str) -> list[Claimed]:
        registry = self.steps.shared.registry
        flows = {row[3]: registry.flows.value(row[3]) for row in started}
        policies = {row[10]: registry.policies.value(row[10]) for row in started}
        jobs: list[Claimed] = []
        for (
            priority,
            due_at,
            _,
            flow,
            job,
            run,
            attempt,
            stage,
            subject,
            args,
            policy,
            _,
        ) in started:
            key = flows[flow]
            jobs.append(
                Claimed(
                    job,
                    run,
                    attempt,
                    key.kind,
                    stage,
                    lane,
                    key.tenant,
                    subject,
                    args,
                    priority,
                    due_at,
                    policies[policy],
                    gated=False,
                    members={},
                    candidate="",
                )
            )
        return jobs


def _is_simple(lanes: CachedLanes, name: str) -> bool:
    """Return whether a lane is known to be neither fair nor limited."""
    row = lanes.rows.get(name)
    return row is not None and not row.current.fair and row.current.concurrency is None
