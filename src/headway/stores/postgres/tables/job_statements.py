"""The statements of the job table."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headway.core.state import State
from headway.stores.ledger import columns
from headway.stores.postgres.arrays import Numbers, Texts, ids_of
from headway.stores.postgres.numbers import FACT, same_store
from headway.stores.postgres.statement import Each, Mode
from headway.stores.postgres.tables.gates import HELD
from headway.stores.postgres.tables.records import DROP_EVENTS, OF_KNOWN
from headway.stores.sql.jobs import NEW, SAVED, ListingQueries, listing_queries
from headway.stores.sql.statement import ANY_JOB, WIDTH, Select, Write, of

COLUMNS = columns.JOB.format(id="id::text")
HEAD = columns.HEAD.format(id="id::text")
FINAL = (*NEW, "finished_at", "purge_at", "reason")
_NAMES = {
    "uuid": ("id",),
    "boolean": ("care", "unfit", "gated", "cancel_requested"),
    "text": (
        *("outcome", "reason", "subject", "stage", "entry", "key", "ticket", "parked_at"),
        "candidate",
    ),
    "bytea": ("keyed", "members", "cascade", "rest", "args"),
}
KINDS = dict.fromkeys((*FINAL, *SAVED), "bigint") | {
    name: kind for kind, names in _NAMES.items() for name in names
}
"""The SQL type of each written column."""
REQUIRED = frozenset(
    (
        *("id", "stage", "args", "state", "lane", "flow", "policy", "priority", "due_at"),
        *("created_at", "run", "attempt", "blocked_ms", "request", "ticket_amount"),
        *("parked_since", *_NAMES["boolean"]),
    )
)
"""The columns that are never null."""


def _bound(columns: Sequence[str], suffix: str = "", first: int = 1) -> str:
    places = enumerate(columns, first)
    return ", ".join(f"${place}::{KINDS[name]}{suffix}" for place, name in places)


def _insert(columns: Sequence[str], listed: Collection[str]) -> str:
    """Return the statement that inserts rows; columns not in `listed` have one value for all rows.

    Lists are unnested side by side in the select list: in FROM, each is copied first, which took a
    quarter of the statement's time.
    """
    places = enumerate(columns, 1)
    values = [
        f"unnest(${place}::{KINDS[name]}[])" if name in listed else f"${place}::{KINDS[name]}"
        for place, name in places
    ]
    return f"INSERT INTO @job ({', '.join(columns)}) SELECT {', '.join(values)}"


INSERT_ONE = Write(_insert(NEW, ()), of("waiting", "scheduled", "expiry", "job"))
INSERTS = tuple(
    (frozenset(listed), Write(_insert(NEW, listed), INSERT_ONE.changes))
    for listed in (("id", "args"), ("id", "due_at", "subject", "stage", "key", "args"), NEW)
)
"""Each inserts several jobs, with a list for these columns and one value for each of the others."""
INSERT_FINAL = Write(_insert(FINAL, FINAL), of("job"))
SAVE = Write(
    f"UPDATE @job AS job SET {', '.join(f'{name} = new.{name}' for name in SAVED)}"  # noqa: S608  (names only)
    f" FROM unnest($1::uuid[], {_bound(SAVED, '[]', 2)}) AS new (id, {', '.join(SAVED)})"
    " WHERE job.id = new.id",
    ANY_JOB,
)
KNOWN_IDS = Select("SELECT id::text FROM @job WHERE id = ANY ($1)", ANY_JOB)
_LOAD = f"SELECT {COLUMNS} FROM @job AS job WHERE job.id {{}}"  # noqa: S608  (names only)
JOBS = Each(_LOAD.format("= ANY ($1)"), ANY_JOB, ids_of, 1)
JOBS_OF_KNOWN = _LOAD.format(f"= ANY (ARRAY({OF_KNOWN}))")
ARRIVED = Select(
    f"SELECT {COLUMNS} FROM @job WHERE seq > $1 ORDER BY seq LIMIT $2",  # noqa: S608  (names only)
    ANY_JOB,
)
SEQS = Select(
    "SELECT seq, id::text, key, flow, state FROM @job AS job WHERE job.id = ANY ($1)", ANY_JOB
)
REMOVE = Write("DELETE FROM @job WHERE seq = ANY ($1)", ANY_JOB)
REMOVE_RUNS = Write("DELETE FROM @run WHERE job = ANY ($1)", of("run"))
REMOVE_KNOWN = Write("DELETE FROM @known WHERE job = ANY ($1)", of("known"))
REMOVE_EVENTS = Write(
    DROP_EVENTS.format("scope = ANY ($1::uuid[]::text[])"),
    of("event", "counts"),
)
REMOVE_KEYS = Write(
    # The hash is a condition twice: with statistics from when the table was empty, the planner
    # would scan it.
    "DELETE FROM @dedupe AS kept WHERE kept.hash = ANY ($1::bytea[]) AND EXISTS"
    " (SELECT FROM unnest($1::bytea[], $2::uuid[]) AS gone (hash, job)"
    " WHERE kept.hash = gone.hash AND kept.job = gone.job)",
    of("key"),
)
ADD_RUNS = Write(
    "INSERT INTO @run SELECT job.seq, new.run, new.body"
    " FROM unnest($1::uuid[], $2::bigint[], $3::bytea[]) AS new (id, run, body)"
    " JOIN @job AS job ON job.id = new.id",
    of("run"),
)
RUNS = Each(
    # Forces the order from jobs to their runs.
    "SELECT job.id::text, run.body"
    " FROM (SELECT id, seq FROM @job AS job WHERE id = ANY ($1) OFFSET 0) AS job CROSS JOIN LATERAL"
    " (SELECT job, run, body FROM @run AS run WHERE run.job = job.seq OFFSET 0) AS run"
    " ORDER BY run.job, run.run",
    of("run"),
    ids_of,
)
_HAS_WAITING = """(
        -- Ordered by the index; without an order, the planner might scan all jobs for any match.
        SELECT FROM @job AS job
        WHERE state = 1 AND lane = (SELECT no FROM lane) AND job.flow = part.flow{}
        ORDER BY job.lane, job.flow, job.priority, job.due_at, job.seq LIMIT 1) AS one"""
FROM_MARK = """
            AND (job.priority, job.due_at, job.seq) >= (part.priority, part.due_at, part.seq)
            AND job.priority < part.below"""
"""Condition that a job is in a range of its flow; see `LowWaterMarks.ranges`."""
FLOWS_WAITING = f"""
-- Flows with low-water marks are read from these on; the other flows are in the gaps between them.
WITH RECURSIVE lane AS (SELECT no FROM @lane WHERE name = $1),
waiting (flow, below) AS (
    SELECT one.flow, gap.below
    FROM unnest($2::bigint[], $3::bigint[]) AS gap (after, below)
    CROSS JOIN LATERAL (
        SELECT flow FROM @job
        WHERE state = 1 AND lane = (SELECT no FROM lane) AND flow > gap.after AND flow < gap.below
        ORDER BY flow LIMIT 1) AS one
    UNION ALL
    SELECT one.flow, waiting.below FROM waiting
    CROSS JOIN LATERAL (
        SELECT job.flow FROM @job AS job
        WHERE state = 1 AND lane = (SELECT no FROM lane)
            AND job.flow > waiting.flow AND job.flow < waiting.below
        ORDER BY job.flow LIMIT 1) AS one),
marked AS (
    SELECT DISTINCT part.flow
    FROM unnest($5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])
        AS part (flow, priority, due_at, seq, below)
    CROSS JOIN LATERAL {_HAS_WAITING.format(FROM_MARK)}),
-- A late commit may have put jobs before a mark.
late AS (
    SELECT part.flow
    FROM (
        SELECT DISTINCT flow FROM unnest($5::bigint[]) AS part (flow)
        WHERE flow NOT IN (SELECT flow FROM marked)) AS part
    CROSS JOIN LATERAL {_HAS_WAITING.format("")})
SELECT flow FROM (
    SELECT flow FROM waiting
    UNION ALL SELECT flow FROM marked
    UNION ALL SELECT flow FROM late) AS one
ORDER BY flow LIMIT $4
"""  # noqa: S608  (constants only)
_HEADS = f"""
    SELECT part.flow, head.* FROM {{}} AS part
    CROSS JOIN LATERAL (
        SELECT {HEAD} FROM @job AS job
        WHERE state = 1 AND job.lane = part.lane AND job.flow = part.flow{{}}
        ORDER BY priority, due_at, seq LIMIT part.most) AS head"""  # noqa: S608  (names only)
HEADS = f"""
WITH part AS (
    SELECT *
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
        $7::bigint[]) AS part (lane, flow, most, priority, due_at, seq, below)),
behind AS MATERIALIZED ({_HEADS.format("part", FROM_MARK)}),
-- If there are too few from a flow's mark on, the whole flow: a late commit may have put jobs
-- before it.
short AS MATERIALIZED (
    SELECT lane, flow, most FROM part WHERE priority >= 0 GROUP BY lane, flow, most
    HAVING most > (SELECT count(*) FROM behind WHERE behind.flow = part.flow))
SELECT * FROM behind WHERE flow NOT IN (SELECT flow FROM short)
UNION ALL ({_HEADS.format("short", "")})
"""  # noqa: S608  (constants only)
# The claim's first statement fixes its time; its later ones see jobs that arrived afterwards.
START_PLAIN = Write(
    "UPDATE @job SET state = 3, run = run + 1, attempt = attempt + 1, worker = $2, request = $3,"
    " claimed_at = greatest(@now, created_at) WHERE seq = ANY ($1)",
    of("waiting", "held", "expiry", "job"),
)
START_GATED = Write(
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
    " finished_at = @now, purge_at = @now + $4, reason = NULL"
    " WHERE job.id = ANY ($1) AND job.run = $2"
    # Keep the planner off the index of a worker's jobs, whose statistics may say that it is empty.
    " AND job.worker + 0 = $3 AND job.state + 0 = 3 AND NOT job.care{}"
    " RETURNING job.id::text, job.lane, job.gated"
)
FINISH = Write(_FINISH.format(""), of("held", "job"), beside=Mode.SHARED)
FINISH_LIVE = _FINISH.format(
    " AND (SELECT NOT who.lapsed AND who.lease_until > @now FROM @worker AS who"
    " WHERE who.id = $5 ORDER BY who.no DESC LIMIT 1)"
)
"""Like `FINISH`, but checks that the worker's lease is live."""
FINISH_ALL = (
    f"{FACT}, done AS ({FINISH_LIVE}),"  # noqa: S608  (constants only)
    " counted AS (INSERT INTO @delta"
    f" SELECT ARRAY[lane * {WIDTH} + {columns.CODES[State.RUNNING]}, lane * {WIDTH}"
    f" + {columns.CODES[State.SUCCEEDED]}, $6::bigint], ARRAY[-n, n, n]"
    " FROM (SELECT lane, count(*) AS n FROM done GROUP BY lane) AS one)"
    " SELECT 1 / (count(*) = cardinality($1) AND NOT coalesce(bool_or(gated), true)"
    f" AND {same_store(7)})::int FROM done"
)
"""A complete settlement; it fails unless it finishes all jobs and none of them holds permits."""
HELD_BY = Select(
    "SELECT id::text, run, request, state, cancel_requested FROM @job"
    # By name: a worker that never held a job has no number, and most beats come from such workers.
    " WHERE state IN (3, 4) AND worker = (SELECT no FROM @word WHERE body = $1)"
    " ORDER BY priority, due_at, seq LIMIT $2",
    of("held"),
    ahead=True,
)
HELD_COUNTS = Select(
    "SELECT who.no, (SELECT count(*) FROM @job WHERE state IN (3, 4) AND worker = who.no)"
    " FROM unnest($1::bigint[]) AS who (no)",
    of("held"),
)
HELD_OF = Each(
    # The first jobs of each worker in the order of `HELD_BY`; no sweep takes more.
    "SELECT who.no, one.* FROM unnest($1::bigint[]) AS who (no) CROSS JOIN LATERAL"
    " (SELECT id::text, run, request, state, cancel_requested FROM @job"
    " WHERE state IN (3, 4) AND worker = who.no ORDER BY priority, due_at, seq LIMIT 1000) AS one",
    of("held"),
    Numbers,
)
TAKEN_BY = Select(
    f"SELECT {COLUMNS} FROM @job"  # noqa: S608  (names only)
    " WHERE state IN (3, 4) AND worker = $1 AND request = $2 AND state = 3"
    " ORDER BY priority, due_at, seq",
    of("held"),
)
HELD_IDS = Select(
    """
WITH RECURSIVE holder (worker) AS (
    (
        SELECT worker FROM @job WHERE state IN (3, 4) AND worker IS NOT NULL
        ORDER BY worker LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.worker FROM @job AS job WHERE state IN (3, 4) AND job.worker > holder.worker
        ORDER BY job.worker LIMIT 1)
    FROM holder WHERE holder.worker IS NOT NULL),
held AS (
    SELECT one.id FROM holder
    CROSS JOIN LATERAL (
        SELECT job.id FROM @job AS job
        WHERE state IN (3, 4) AND job.worker = holder.worker AND job.id > $1::uuid
        ORDER BY job.id LIMIT $2) AS one
    UNION ALL (
        SELECT job.id FROM @job AS job
        WHERE state IN (3, 4) AND worker IS NULL AND job.id > $1::uuid
        ORDER BY job.worker, job.id LIMIT $2))
SELECT id::text FROM held ORDER BY held.id LIMIT $2
""",
    of("held"),
)
NO_JOB = "00000000-0000-0000-0000-000000000000"
"""An id below all others."""
LAST_FLOW = 2**62
"""A number above all flows."""
PROMOTE_DUE = Write(
    """
WITH due AS MATERIALIZED (
    SELECT lane.name, one.* FROM @lane AS lane
    CROSS JOIN LATERAL (
        SELECT flow, priority, due_at, seq, id, CASE WHEN run = 0 THEN entry END AS entry
        FROM @job AS job
        WHERE state = 0 AND job.lane = lane.no AND due_at <= @now
            -- A claim ends expired jobs after this; what it returns must still be scheduled then.
            AND (entry IS NULL OR run > 0 OR coalesce(expires_at, @now + 1) > @now)
        ORDER BY due_at, seq LIMIT $2::bigint) AS one
    WHERE lane.name = ANY ($1::text[])
        -- A repeated claim changes nothing.
        AND coalesce((SELECT request FROM @worker WHERE id = $3 ORDER BY no DESC LIMIT 1), 0)
            < $4::bigint),
promoted AS (
    UPDATE @job SET state = 1 WHERE seq = ANY (ARRAY (SELECT seq FROM due WHERE entry IS NULL)))
SELECT flow, priority, due_at, seq, name, id::text, entry FROM due ORDER BY due_at, seq
""",
    of("scheduled", "waiting", "job"),
)
PROMOTE = Write(
    "UPDATE @job SET state = 1 WHERE seq = ANY ($1) RETURNING flow, priority, due_at, seq",
    of("scheduled", "waiting", "job"),
)
NEXT_DUE = Select(
    """
SELECT one.due_at FROM @lane AS lane
CROSS JOIN LATERAL (
    SELECT due_at FROM @job AS job
    WHERE state = 0 AND job.lane = lane.no ORDER BY due_at LIMIT 1) AS one
WHERE name = ANY ($1::text[]) ORDER BY due_at LIMIT 1
""",
    of("scheduled"),
    ahead=True,
)
LANES_DUE = Select(
    """
WITH RECURSIVE scheduled (lane, due_at) AS (
    (SELECT lane, due_at FROM @job WHERE state = 0 ORDER BY lane, due_at LIMIT 1)
    UNION ALL
    SELECT next.* FROM scheduled
    CROSS JOIN LATERAL (
        SELECT job.lane, job.due_at FROM @job AS job
        WHERE state = 0 AND job.lane > scheduled.lane
        ORDER BY job.lane, job.due_at LIMIT 1) AS next)
SELECT name FROM scheduled JOIN @lane AS lane ON lane.no = scheduled.lane
WHERE due_at <= @now ORDER BY name LIMIT $1
""",
    of("scheduled"),
    ahead=True,
)
EXPIRED = Select(
    "SELECT id::text FROM @job"
    " WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0 AND expires_at <= @now"
    " ORDER BY expires_at, seq LIMIT $1",
    of("expiry"),
    ahead=True,
)
NEXT_EXPIRY = Select(
    "SELECT expires_at FROM @job WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0"
    " ORDER BY expires_at LIMIT 1",
    of("expiry"),
    ahead=True,
)
DEADLINES = Select(
    # Only by the index of deadlines; a condition on the state would allow the index of workers'
    # jobs, which would be read whole.
    "SELECT id::text FROM @job"
    " WHERE deadline_at IS NOT NULL AND deadline_at <= @now AND state + 0 = 4"
    " ORDER BY deadline_at, seq LIMIT $1",
    of("deadline"),
    ahead=True,
)
NEXT_DEADLINE = Select(
    "SELECT deadline_at FROM @job WHERE deadline_at IS NOT NULL ORDER BY deadline_at LIMIT 1",
    of("deadline"),
    ahead=True,
)
PURGEABLE = Select(
    "SELECT id::text FROM @job"
    " WHERE purge_at IS NOT NULL AND purge_at <= @now AND state >= 5"
    " ORDER BY purge_at, seq LIMIT $1",
    of("job"),
    ahead=True,
)
OF_ENTRY = Select(
    f"SELECT {COLUMNS} FROM @job"  # noqa: S608  (names only)
    " WHERE entry IS NOT NULL AND state <= 4 AND entry = $1 ORDER BY fired_at, seq",
    of("job"),
)
MOST_PARKED_FLOWS, MOST_PARKED = 1_024, 8_192
"""Maximum number of a gate's flows whose parked jobs are read ahead, and approximate number of
their jobs in total; if a gate has more flows, they are read in turn.
"""
LEAST_PARKED = 3
"""Minimum number of jobs read per flow."""
_AT = "state = 2 AND NOT unfit AND parked_at = $1"
_UNFIT = "state = 2 AND unfit AND parked_at = $1"
_GATE_OF_QUEUE = "substr(queue, strpos(queue, ' ') + 1)"
PARKED_FLOWS = Select(
    f"""
WITH RECURSIVE parked (flow) AS (
    (SELECT flow FROM @job WHERE {_AT} AND flow > $2 ORDER BY flow LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.flow FROM @job AS job WHERE {_AT} AND job.flow > parked.flow
        ORDER BY job.flow LIMIT 1)
    FROM parked WHERE parked.flow IS NOT NULL)
SELECT flow FROM parked WHERE flow IS NOT NULL LIMIT $3
""",  # noqa: S608  (names only)
    of("parked"),
)
PARKED_HEADS = Select(
    f"SELECT {HEAD} FROM @job WHERE {_AT} AND flow = $2"  # noqa: S608  (names only)
    " ORDER BY priority, due_at, seq LIMIT $3",
    of("parked"),
)
FIRST_PARKED = Each(
    "SELECT queue, one.* FROM unnest($1::text[]) AS queue CROSS JOIN LATERAL"  # noqa: S608  (names only)
    f" (SELECT priority, due_at, seq FROM @job WHERE {_AT.replace('$1', _GATE_OF_QUEUE)}"
    " AND flow = split_part(queue, ' ', 1)::bigint ORDER BY priority, due_at, seq LIMIT 1) AS one",
    of("parked"),
    Texts,
)


def queue_of(gate: str, flow: int) -> str:
    """Return the key in `FIRST_PARKED` for a flow's jobs parked at a gate."""
    return f"{flow} {gate}"


PARKED_IDS = Select(
    "SELECT want.flow, one.id FROM unnest($2::bigint[]) AS want (flow) CROSS JOIN LATERAL"  # noqa: S608  (names only)
    f" (SELECT id::text FROM @job AS job WHERE {_AT} AND job.flow = want.flow"
    " ORDER BY priority, due_at, seq LIMIT $3) AS one",
    of("parked"),
)
PARKED_ORDERS = Select(
    "SELECT want.flow, one.* FROM unnest($2::bigint[]) AS want (flow) CROSS JOIN LATERAL"  # noqa: S608  (names only)
    f" (SELECT priority, due_at, seq FROM @job AS job WHERE {_AT} AND job.flow = want.flow"
    " ORDER BY priority, due_at, seq LIMIT 1) AS one",
    of("parked"),
)
_FIT_HERE, _UNFIT_HERE = (one.replace("$1", "gate.name") for one in (_AT, _UNFIT))
PARKED_COUNTS = Select(
    "SELECT gate.name,"  # noqa: S608  (names only)
    f" (SELECT count(*) FROM (SELECT FROM @job WHERE {_FIT_HERE} LIMIT $2) AS fit)"
    f" + (SELECT count(*) FROM (SELECT FROM @job WHERE {_UNFIT_HERE} LIMIT $2) AS unfit)"
    " FROM unnest($1::text[]) AS gate (name)",
    of("parked"),
)
UNFIT = Each(
    "SELECT gate.name, one.* FROM unnest($1::text[]) AS gate (name) CROSS JOIN LATERAL"
    " (SELECT id::text, ticket_amount FROM @job WHERE state = 2 AND unfit"
    " AND parked_at = gate.name ORDER BY ticket_amount, seq LIMIT 1000) AS one",
    of("parked"),
    Texts,
)
_WANTED = "unnest($1::text[], $2::bigint[])"
PARKED = f"""
-- Limited to as many flows of a gate as one step reads; arguments are omitted, since they are not
-- used.
SELECT gate.name, flow.flow, head.* FROM {_WANTED} AS gate (name, most)
CROSS JOIN LATERAL (
    WITH RECURSIVE parked (flow, n) AS (
        (
            SELECT flow, 1 FROM @job WHERE state = 2 AND NOT unfit AND parked_at = gate.name
            ORDER BY flow LIMIT 1)
        UNION ALL
        SELECT next.flow, n + 1 FROM parked
        CROSS JOIN LATERAL (
            SELECT job.flow FROM @job AS job
            WHERE state = 2 AND NOT unfit AND parked_at = gate.name AND job.flow > parked.flow
            ORDER BY job.flow LIMIT 1) AS next
        WHERE n <= {MOST_PARKED_FLOWS})
    SELECT flow, count(*) OVER () AS n FROM parked) AS flow
CROSS JOIN LATERAL (
    SELECT {HEAD.replace(" args,", "''::bytea AS args,")} FROM @job AS job
    WHERE state = 2 AND NOT unfit AND parked_at = gate.name AND job.flow = flow.flow
    ORDER BY priority, due_at, seq
    LIMIT least(gate.most, greatest({LEAST_PARKED}, {MOST_PARKED} / flow.n))) AS head
"""  # noqa: S608  (names only)
TICKETS_OF = (
    # Only by the index of tickets; the index of waiting jobs would be read whole.
    "SELECT ticket, flow, priority, due_at, seq, ticket_amount FROM @job"
    " WHERE ticket IS NOT NULL AND ticket = ANY ($1) AND state + 0 = 1"
    " ORDER BY priority, due_at, seq"
)
PARKED_AT_HELD = PARKED.replace(_WANTED, f"(SELECT name, $3::bigint FROM ({HELD}) AS held)")  # noqa: S608  (names only)
TICKETS_OF_HELD = TICKETS_OF.replace("$1", f"ARRAY({HELD})")
_GATES = """(
    WITH RECURSIVE gates (gate) AS (
        (
            SELECT parked_at FROM @job WHERE state = 2 AND {0} AND parked_at > $1
            ORDER BY parked_at LIMIT 1)
        UNION ALL
        SELECT (
            SELECT parked_at FROM @job WHERE state = 2 AND {0} AND parked_at > gates.gate
            ORDER BY parked_at LIMIT 1)
        FROM gates WHERE gates.gate IS NOT NULL)
    SELECT gate FROM gates WHERE gate IS NOT NULL LIMIT $2)"""
PARKED_GATES = Select(
    f"SELECT gate FROM ({_GATES.format('NOT unfit')} UNION {_GATES.format('unfit')}) AS one"  # noqa: S608  (names only)
    " ORDER BY gate LIMIT $2",
    of("parked"),
)
TICKETS = Select(
    "SELECT priority, due_at, seq, ticket_amount FROM @job"
    " WHERE ticket IS NOT NULL AND ticket = $1 AND flow = $2 AND state + 0 = 1"
    " ORDER BY priority, due_at, seq",
    of("waiting"),
)
FEED = Write(
    "UPDATE @job AS job SET state = 1, ticket = fed.gate, ticket_amount = fed.amount,"
    " parked_at = NULL, unfit = false, blocked_ms = blocked_ms + @now - parked_since"
    " FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS fed (seq, gate, amount)"
    " WHERE job.seq = fed.seq",
    of("waiting", "parked", "job"),
)
PARK = Write(
    "UPDATE @job SET state = 2, parked_at = $2, unfit = $3::bigint > 0, parked_since = @now,"
    " ticket = NULL, ticket_amount = $3::bigint,"
    " blocked_ms = blocked_ms + CASE state WHEN 2 THEN @now - parked_since ELSE 0 END"
    " WHERE seq = ANY ($1)",
    of("waiting", "parked", "job"),
)


def _read_flows(found: list[int] | None) -> Sequence[int]:
    return found or ()


_FLOWS = "array_agg(DISTINCT flow)"
LISTINGS = ListingQueries(
    listing_queries(_FLOWS, "WHERE true"),
    listing_queries(_FLOWS, "WHERE subject IS NOT NULL AND subject = ?"),
    {
        4: listing_queries(_FLOWS, "WHERE state = 4"),
        **{
            code: listing_queries(_FLOWS, f"WHERE state >= 6 AND state = {code}") for code in (6, 7)
        },
    },
    _read_flows,
)
BY_SEQ = Select(f"SELECT {COLUMNS} FROM @job WHERE seq = ANY ($1)", ANY_JOB)  # noqa: S608  (names only)
_OF_FLOW = "state = 1 AND lane = $1 AND flow = $2"
BEFORE = Select(
    "SELECT (SELECT count(*) FROM (SELECT FROM @job"  # noqa: S608  (names only)
    f" WHERE {_OF_FLOW} AND (priority, due_at, seq) < ($3, $4, $5) LIMIT $6) AS one)",
    of("waiting"),
)
WAITING = Select(
    "SELECT want.flow, (SELECT count(*) FROM (SELECT FROM @job AS job WHERE state = 1"
    " AND lane = $1 AND job.flow = want.flow ORDER BY priority, due_at LIMIT $3) AS one)"
    " FROM unnest($2::bigint[]) AS want (flow)",
    of("waiting"),
)
OLDEST = Select(
    """
-- Of the first 16 flows of each lane, in the order of the index, so that nothing is scanned.
SELECT lane.no, oldest.due_at FROM unnest($1::bigint[]) AS lane (no)
CROSS JOIN LATERAL (
    WITH RECURSIVE waiting (flow, n) AS (
        (
            SELECT flow, 1 FROM @job AS job WHERE state = 1 AND job.lane = lane.no
            ORDER BY flow LIMIT 1)
        UNION ALL
        SELECT one.flow, n + 1 FROM waiting
        CROSS JOIN LATERAL (
            SELECT job.flow FROM @job AS job
            WHERE state = 1 AND job.lane = lane.no AND job.flow > waiting.flow
            ORDER BY job.flow LIMIT 1) AS one
        WHERE n < 16)
    SELECT min(head.due_at) AS due_at FROM waiting
    CROSS JOIN LATERAL (
        SELECT due_at FROM @job AS job
        WHERE state = 1 AND job.lane = lane.no AND job.flow = waiting.flow
        ORDER BY priority, due_at LIMIT 1) AS head) AS oldest
WHERE oldest.due_at IS NOT NULL
""",
    of("waiting"),
)
