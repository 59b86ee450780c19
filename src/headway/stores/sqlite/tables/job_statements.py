"""The statements of the job table."""

from __future__ import annotations

import json

from headway.stores.ledger import columns
from headway.stores.sql.jobs import NEW, SAVED, ListingQueries, listing_queries

COLUMNS = columns.JOB.format(id="id")
HEAD = columns.HEAD.format(id="id")
_ZERO = (
    *("run", "attempt", "request", "gated", "blocked_ms", "ticket_amount", "unfit"),
    *("parked_since", "cancel_requested"),
)


def _insert(bound: tuple[str, ...]) -> str:
    """Return an INSERT of `seq` and bound columns; the other columns of `_ZERO` are 0."""
    zero = [name for name in _ZERO if name not in bound]
    names, places = ", ".join((*bound, *zero)), ", ?" * len(bound) + ", 0" * len(zero)
    return f"INSERT INTO job (seq, {names}) VALUES (?{places})"  # noqa: S608  (names only)


INSERT_QUEUED = _insert(NEW)
INSERT = _insert(("id", "lane", "created_at", "entry", "fired_at", *SAVED))
SAVE = f"UPDATE job SET {', '.join(f'{name} = ?' for name in SAVED)} WHERE seq = ?"  # noqa: S608  (names only)
KNOWN = "SELECT id FROM job INDEXED BY job_id WHERE id IN carray(?)"
KNOWN_ONE = "SELECT id FROM job INDEXED BY job_id WHERE id = ?"
LOAD = f"SELECT {COLUMNS} FROM job INDEXED BY job_id WHERE id IN carray(?)"  # noqa: S608  (names only)
ARRIVED = f"SELECT {COLUMNS} FROM job WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608  (names only)
SEQS = "SELECT seq, id, key, flow, state FROM job INDEXED BY job_id WHERE id IN carray(?)"
REMOVE = "DELETE FROM job WHERE seq IN carray(?)"
REMOVE_RUNS = "DELETE FROM run WHERE job IN carray(?)"
REMOVE_KNOWN = "DELETE FROM known INDEXED BY known_job WHERE job IN carray(?)"
COUNT_EVENTS = "SELECT count(*) FROM event WHERE scope IN carray(?) AND kept_until IS NOT NULL"
REMOVE_EVENTS = "DELETE FROM event WHERE scope IN carray(?)"
REMOVE_KEY = "DELETE FROM dedupe WHERE tenant = ? AND key = ? AND job = ?"
ADD_RUN = "INSERT INTO run VALUES ((SELECT seq FROM job WHERE id = ?), ?, ?)"
RUNS = "SELECT body FROM run WHERE job = ? ORDER BY run"


def _distinct(column: str, index: str, where: str, above: str) -> str:
    """Return a CTE `found` of a column's distinct values above one, with one seek for each."""
    rows = f"FROM job INDEXED BY {index} WHERE {where} AND job.{column}"
    return (
        f"WITH RECURSIVE found (one) AS (SELECT min(job.{column}) {rows} > {above}"  # noqa: S608  (names only)
        f" UNION ALL SELECT (SELECT min(job.{column}) {rows} > found.one)"
        " FROM found WHERE found.one IS NOT NULL)"
    )


_FOUND = " SELECT one FROM found WHERE one IS NOT NULL"
FLOWS_WAITING = (
    f"{_distinct('flow', 'job_waiting', 'state = 1 AND lane = ?1', '?2')}{_FOUND} LIMIT ?3"
)
HEADS = (
    f"SELECT {HEAD} FROM job INDEXED BY job_waiting"  # noqa: S608  (names only)
    " WHERE state = 1 AND lane = ? AND flow = ? ORDER BY priority, due_at, seq LIMIT ?"
)
FIRST_ORDERS = (
    "SELECT job.flow, job.priority, job.due_at, job.seq FROM carray(?2) AS wanted"
    " CROSS JOIN job ON job.seq = ("
    "SELECT seq FROM job INDEXED BY job_waiting"
    " WHERE state = 1 AND lane = ?1 AND flow = wanted.value"
    " ORDER BY priority, due_at, seq LIMIT 1)"
)
START_PLAIN = (
    "UPDATE job SET state = 3, run = run + 1, attempt = attempt + 1, worker = ?2, request = ?3,"
    " claimed_at = ?4 WHERE seq IN carray(?1)"
)
START_GATED = (
    "UPDATE job SET state = 3, run = run + 1, attempt = attempt + 1, worker = ?2, request = ?3,"
    " claimed_at = ?4, blocked_ms = blocked_ms + ?5, ticket = NULL, ticket_amount = 0,"
    " members = ?6, gated = ?6 IS NOT NULL, candidate = ?7, cascade = coalesce(?8, cascade)"
    " WHERE seq = ?1"
)
FINISHING_LANES = (
    "SELECT count(*), min(lane), max(lane), max(gated) FROM job INDEXED BY job_id"
    " WHERE id IN carray(?1) AND run = ?2 AND worker = ?3 AND state = 3 AND care = 0"
)
FINISHING = (
    "SELECT id, lane FROM job INDEXED BY job_id"
    " WHERE id IN carray(?1) AND run = ?2 AND worker = ?3 AND state = 3 AND care = 0"
)
FINISH = (
    "UPDATE job INDEXED BY job_id SET state = 5, outcome = 'succeeded', last_worker = worker,"
    " worker = NULL, finished_at = ?4, purge_at = ?5, reason = NULL"
    " WHERE id IN carray(?1) AND run = ?2 AND worker = ?3 AND state = 3 AND care = 0"
)
HELD_BY = (
    "SELECT id, run, request, state, cancel_requested FROM job INDEXED BY job_worker"
    " WHERE state IN (3, 4) AND worker = ? ORDER BY priority, due_at, seq LIMIT ?"
)
TAKEN_BY = (
    f"SELECT {COLUMNS} FROM job INDEXED BY job_worker"  # noqa: S608  (names only)
    " WHERE state IN (3, 4) AND worker = ? AND request = ? AND state = 3"
    " ORDER BY priority, due_at, seq"
)
HOLDERS = f"{_distinct('worker', 'job_worker', 'state IN (3, 4)', '0')}{_FOUND}"
HELD_IDS = (
    "SELECT id FROM job INDEXED BY job_worker"
    " WHERE state IN (3, 4) AND worker IS ? AND id > ? ORDER BY id LIMIT ?"
)
DUE = (
    "SELECT seq, id, CASE WHEN run = 0 THEN entry END, due_at FROM job INDEXED BY job_scheduled"
    " WHERE state = 0 AND lane = ? AND due_at <= ? ORDER BY due_at, seq LIMIT ?"
)
PROMOTE = "UPDATE job SET state = 1 WHERE seq IN carray(?)"
NEXT_DUE = (
    "SELECT min((SELECT min(due_at) FROM job INDEXED BY job_scheduled"
    " WHERE state = 0 AND lane = one.value)) FROM carray(?) AS one"
)
LANES_DUE = (
    f"{_distinct('lane', 'job_scheduled', 'state = 0', '0')}"  # noqa: S608  (names only)
    " SELECT name FROM found JOIN lane ON lane.no = found.one"
    " WHERE (SELECT min(due_at) FROM job INDEXED BY job_scheduled"
    " WHERE state = 0 AND job.lane = found.one) <= ?"
    " ORDER BY name LIMIT ?"
)
EXPIRED = (
    "SELECT id FROM job INDEXED BY job_expiry"
    " WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0 AND expires_at <= ?"
    " ORDER BY expires_at, seq LIMIT ?"
)
NEXT_EXPIRY = (
    "SELECT min(expires_at) FROM job INDEXED BY job_expiry"
    " WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0"
)
DEADLINES = (
    "SELECT id FROM job INDEXED BY job_deadline"
    " WHERE deadline_at IS NOT NULL AND deadline_at <= ? AND state = 4"
    " ORDER BY deadline_at, seq LIMIT ?"
)
NEXT_DEADLINE = (
    "SELECT min(deadline_at) FROM job INDEXED BY job_deadline WHERE deadline_at IS NOT NULL"
)
PURGEABLE = (
    "SELECT id FROM job INDEXED BY job_purge"
    " WHERE purge_at IS NOT NULL AND purge_at <= ? AND state >= 5"
    " ORDER BY purge_at, seq LIMIT ?"
)
OF_ENTRY = (
    f"SELECT {COLUMNS} FROM job INDEXED BY job_entry"  # noqa: S608  (names only)
    " WHERE entry IS NOT NULL AND state <= 4 AND entry = ? ORDER BY fired_at, seq"
)
_PARKED = "state = 2 AND unfit = 0"
WITH_PARKED = (
    "SELECT value FROM carray(?) WHERE EXISTS"  # noqa: S608  (names only)
    f" (SELECT 1 FROM job INDEXED BY job_parked WHERE {_PARKED} AND parked_at = value)"
)
PARKED_FLOWS = (
    f"{_distinct('flow', 'job_parked', f'{_PARKED} AND parked_at = ?1', '?2')}{_FOUND} LIMIT ?3"
)
_FIRST_PARKED = (
    f"FROM job INDEXED BY job_parked WHERE {_PARKED} AND parked_at = ?1 AND flow = ?2"
    " ORDER BY priority, due_at, seq LIMIT"
)
PARKED_HEADS = f"SELECT {HEAD} {_FIRST_PARKED} ?3"
PARKED_ORDER = f"SELECT priority, due_at, seq {_FIRST_PARKED} 1"
PARKED_ORDERS = (
    "SELECT job.flow, job.priority, job.due_at, job.seq FROM carray(?2) AS wanted"  # noqa: S608  (names only)
    f" CROSS JOIN job ON job.seq = (SELECT seq {_FIRST_PARKED.replace('?2', 'wanted.value')} 1)"
)
PARKED_IDS = f"SELECT id {_FIRST_PARKED} ?3"
COUNT_FIT = (
    "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_parked"
    " WHERE state = 2 AND unfit = 0 AND parked_at = ? LIMIT ?)"
)
COUNT_UNFIT = (
    "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_unfit"
    " WHERE state = 2 AND unfit = 1 AND parked_at = ? LIMIT ?)"
)
UNFIT_AT = (
    "SELECT id FROM job INDEXED BY job_unfit"
    " WHERE state = 2 AND unfit = 1 AND parked_at = ? AND ticket_amount <= ?"
    " ORDER BY ticket_amount, seq LIMIT ?"
)
GATES_FIT = f"{_distinct('parked_at', 'job_parked', _PARKED, '?1')}{_FOUND} LIMIT ?2"
GATES_UNFIT = (
    f"{_distinct('parked_at', 'job_unfit', 'state = 2 AND unfit = 1', '?1')}{_FOUND} LIMIT ?2"
)
TICKETS = (
    "SELECT priority, due_at, seq, ticket_amount FROM job INDEXED BY job_ticket"
    " WHERE ticket IS NOT NULL AND ticket = ? AND flow = ? AND state = 1"
    " ORDER BY priority, due_at, seq"
)
FEED = (
    "UPDATE job SET state = 1, ticket = ?2, ticket_amount = ?3, parked_at = NULL, unfit = 0,"
    " blocked_ms = blocked_ms + ?4 - parked_since WHERE seq = ?1"
)
PARK = (
    "UPDATE job SET state = 2, parked_at = ?2, unfit = ?3 > 0, parked_since = ?4, ticket = NULL,"
    " ticket_amount = ?3, blocked_ms = blocked_ms + iif(state = 2, ?4 - parked_since, 0)"
    " WHERE seq IN carray(?1)"
)
_FLOWS = "json_group_array(DISTINCT flow)"
_ENDED = "INDEXED BY job_ended_badly WHERE state >= 6 AND state = "
LISTINGS = ListingQueries(
    listing_queries(_FLOWS, "WHERE true"),
    listing_queries(_FLOWS, "INDEXED BY job_subject WHERE subject IS NOT NULL AND subject = ?"),
    {
        4: listing_queries(_FLOWS, "INDEXED BY job_awaiting WHERE state = 4"),
        **{code: listing_queries(_FLOWS, f"{_ENDED}{code}") for code in (6, 7)},
    },
    json.loads,
)
BY_SEQ = f"SELECT {COLUMNS} FROM job WHERE seq IN carray(?)"  # noqa: S608  (names only)


def _before(condition: str) -> str:
    return (
        "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_waiting"  # noqa: S608  (names only)
        f" WHERE state = 1 AND lane = ?1 AND flow = ?2 AND {condition} LIMIT ?4)"
    )


BEFORE = _before("priority < ?3")
BEFORE_DUE = _before("priority = ?3 AND due_at < ?5")
BEFORE_SEQ = _before("priority = ?3 AND due_at = ?5 AND seq < ?6")
WAITING = (
    "SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_waiting"
    " WHERE state = 1 AND lane = ? AND flow = ? LIMIT ?)"
)
FIRST_DUE = (
    "SELECT due_at FROM job INDEXED BY job_waiting"
    " WHERE state = 1 AND lane = ? AND flow = ? ORDER BY priority, due_at LIMIT 1"
)
